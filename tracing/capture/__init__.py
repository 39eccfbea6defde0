"""From a module and one call of it to a graph.

`trace` puts together what the other files do: `model_call` and `user_model` prepare the model;
`export` and `program` read what `torch.export` saw, `recorder` watches a run instead, on tensors
without values or, in `real_run`, with them; both hand calls to `builder`. The others help the model
to be seen: `checkpoints`, `hidden_attention`, `inlining`, `packed_sequences`, `sound_run`, `vmap`.
"""
