"""What users call: predictions, calibrated ones, whole tables of them.

`loading` gives a predictor as `interface` describes it: a `predictor`, or a `calibrated` one with
the corrections of a `calibration`. It keeps what is `derived` from graphs and answers `questions`
with a `prediction` and its `breakdown`; `outside` says how far a graph is from those of training.
`jobs` and `bulk` are whole tables of questions.
"""
