"""Parts of the study of memory: batch sizes that fitted, measured peaks, other tools."""
