//! Matrices whose names, shapes and types were checked and whose weights were not read: a dry run of loading.
//!
//! Invariant: nothing runs on them; a target that holds them is dropped after the check.

use crate::ModelError;
use crate::files::ModelFiles;
use crate::nn::experts::{ExpertNames, ExpertSizes, Experts, StoredExperts};
use crate::nn::linear::Linear;

/// Checks a matrix that is multiplied, `[.., in]`.
pub(super) fn linear(source: &ModelFiles, name: &str, shape: &[usize]) -> Result<Linear, ModelError> {
    source.check(name, shape)?;
    Ok(Linear::unread())
}

/// Checks the experts of a layer.
pub(super) fn experts(source: &ModelFiles, names: &ExpertNames, sizes: ExpertSizes) -> Result<Experts, ModelError> {
    for (name, shape) in names.all().zip(StoredExperts::shapes(names, sizes)) {
        source.check(name, &shape)?;
    }
    Ok(Experts::unread(sizes))
}

/// Checks the weights of a norm, which is no difference to 1: zeros would erase all rows. They are what a download tool
/// reserved and did not fill.
pub(super) fn norm(source: &ModelFiles, name: &str, width: usize) -> Result<(), ModelError> {
    if source.vector(name, width)?.iter().any(|weight| *weight != 0.0) {
        return Ok(());
    }
    let what = format!("tensor '{name}' holds only zeros, as in an unfinished download");
    Err(ModelError::Corrupt { path: source.path().to_owned(), what })
}
