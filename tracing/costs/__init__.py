"""What an operator costs: arithmetic, bytes, what autograd keeps."""
