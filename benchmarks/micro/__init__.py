"""What single functions of the core take, beside a reference in the same run."""
