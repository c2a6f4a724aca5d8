//! Sums and quotients of counts.

/// A quotient; none by zero.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Adds one at an index; the list grows as it must.
pub(super) fn count(list: &mut Vec<u64>, index: usize) {
    if list.len() <= index {
        list.resize(index + 1, 0);
    }
    list[index] += 1;
}

/// Adds lists up, place by place.
pub(super) fn merge_lists(into: &mut Vec<u64>, from: &[u64]) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (sum, part) in into.iter_mut().zip(from) {
        *sum = sum.saturating_add(*part);
    }
}
