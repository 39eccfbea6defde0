"""What users call: predictions, calibrated ones, whole tables of them."""
