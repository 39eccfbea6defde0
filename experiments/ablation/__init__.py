"""Parts of the study of ablations: named variants, and rows without a part of their input."""
