//! Chat templates and the prompts that they make.
