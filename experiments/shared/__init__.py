"""What studies share: results and how they were made, resumable runs, tables, plots, options."""
