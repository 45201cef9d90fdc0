//! The quick forms of the experiments.
