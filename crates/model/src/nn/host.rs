//! What passes on candle copy to the host: several tensors at once, and of rows of logits the best alone.

use candle_core::Tensor;

use crate::{BEST_LOGITS, Best, ModelError, RowStats};

/// Logits whose largest is searched together.
const GROUP: usize = 64;

/// The numbers of each tensor, row after row; from a GPU in one copy, since each waits until all kernels are done.
///
/// # Errors
/// When memory is short, or the device fails.
pub(crate) fn numbers_of<const N: usize>(tensors: [&Tensor; N]) -> Result<[Vec<f32>; N], ModelError> {
    let mut numbers = [const { Vec::new() }; N];
    if N < 2 || tensors[0].device().is_cpu() {
        for (numbers, tensor) in numbers.iter_mut().zip(tensors) {
            *numbers = tensor.flatten_all()?.to_vec1()?;
        }
        return Ok(numbers);
    }
    let flat = tensors.iter().map(|tensor| tensor.flatten_all()).collect::<candle_core::Result<Vec<_>>>()?;
    let all: Vec<f32> = Tensor::cat(&flat, 0)?.to_vec1()?;
    let mut rest = &all[..];
    for (numbers, tensor) in numbers.iter_mut().zip(tensors) {
        let own = rest.split_off(..tensor.elem_count()).unwrap_or_default();
        *numbers = own.to_vec();
    }
    Ok(numbers)
}

/// Statistics with the best logits of each row of `logits [m, v]`, and the numbers of another tensor. `drafted`: tokens
/// whose logits are listed too, and the rows that predict them.
///
/// Two copies: the peak of each group of [`GROUP`] logits with the sums, then the groups with the highest peaks, in which
/// the [`BEST_LOGITS`] largest logits lie.
///
/// # Errors
/// When memory is short, or the device fails.
pub(crate) fn best_rows(
    logits: &Tensor,
    drafted: &[(usize, u32)],
    beside: &Tensor,
) -> Result<(Vec<RowStats>, Vec<f32>), ModelError> {
    let (m, v) = logits.dims2()?;
    let group = GROUP.min(v);
    let groups = v / group;
    let whole = logits.narrow(1, 0, groups * group)?.contiguous()?.reshape((m * groups, group))?;
    // logits after the last whole group, or the last one again where there are none
    let rest = (groups * group).min(v - 1);
    let tail = logits.narrow(1, rest, v - rest)?;
    let (max, min) = (logits.max_keepdim(1)?, logits.min_keepdim(1)?);
    let sums = logits.broadcast_sub(&max)?.exp()?.sum_keepdim(1)?;
    let sums = Tensor::cat(&[max, min, sums], 1)?;
    let [peaks, sums, tails, beside] = numbers_of([&whole.max(1)?, &sums, &tail, beside])?;

    let highest: Vec<Vec<u32>> = peaks.chunks(groups).map(highest).collect();
    let ids = highest.iter().enumerate().flat_map(|(row, own)| own.iter().map(move |at| (row * groups) as u32 + at));
    let ids = to_ids(ids.collect(), logits)?;
    let places = drafted.iter().map(|(row, token)| (row * v) as u32 + token).chain([0]); // never empty
    let places = to_ids(places.collect(), logits)?;
    let [found, drafts] =
        numbers_of([&whole.index_select(&ids, 0)?, &logits.flatten_all()?.index_select(&places, 0)?])?;

    let mut found = found.chunks(group);
    let stats = highest.iter().zip(sums.chunks(3)).zip(tails.chunks(tails.len() / m)).enumerate();
    let stats = stats.map(|(row, ((groups_of_row, sums), tail))| {
        let of_group = |(at, logits): (&u32, &[f32])| numbered(*at as usize * group, logits);
        let mut listed: Vec<(u32, f32)> = groups_of_row.iter().zip(found.by_ref()).flat_map(of_group).collect();
        listed.extend(numbered(rest, tail));
        let own = drafted.iter().zip(&drafts).filter(|((of, _), _)| *of == row);
        row_stats(listed, [sums[0], sums[1], sums[2]], own.map(|((_, token), logit)| (*token, *logit)))
    });
    Ok((stats.collect(), beside))
}

/// Indices for `index_select` of a tensor on the device of another.
fn to_ids(ids: Vec<u32>, like: &Tensor) -> Result<Tensor, ModelError> {
    let count = ids.len();
    Ok(Tensor::from_vec(ids, count, like.device())?)
}

/// Logits with their indices, from `first` on.
fn numbered(first: usize, logits: &[f32]) -> Vec<(u32, f32)> {
    (first as u32..).zip(logits.iter().copied()).collect()
}

/// The groups with the highest peaks, in which the largest logits lie; of equal peaks the first.
fn highest(peaks: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..peaks.len() as u32).collect();
    order.sort_by(|a, b| peaks[*b as usize].total_cmp(&peaks[*a as usize]));
    order.truncate(BEST_LOGITS);
    order
}

/// Statistics of a row from logits among which the largest are, and from its largest logit, its smallest, and Σ e^(logit −
/// largest).
fn row_stats(
    mut listed: Vec<(u32, f32)>,
    [max, min, sum]: [f32; 3],
    drafted: impl Iterator<Item = (u32, f32)>,
) -> RowStats {
    listed.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    listed.dedup_by_key(|(index, _)| *index);
    listed.truncate(BEST_LOGITS);
    let argmax = listed.first().map_or(0, |(index, _)| *index);
    let drafted: Vec<_> = drafted.filter(|(token, _)| listed.iter().all(|(index, _)| index != token)).collect();
    listed.extend(drafted);
    let is_finite = max.is_finite() && min.is_finite();
    let log_sum_exp = if is_finite { max + sum.ln() } else { f32::NAN };
    RowStats { argmax, max, log_sum_exp, best: Best::Logits(listed) }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// Logits in an order that looks random, some of them equal.
    fn logits(m: usize, v: usize) -> Vec<f32> {
        (0..m * v).map(|i| ((i * 7919 + i / 7) % 1999) as f32 / 100.0 - 7.0).collect()
    }

    fn best(values: &[f32], m: usize, drafted: &[(usize, u32)]) -> Vec<RowStats> {
        let logits = Tensor::from_slice(values, (m, values.len() / m), &Device::Cpu).unwrap();
        let beside = Tensor::new(&[[1f32, 2.0], [3.0, 4.0]], &Device::Cpu).unwrap();
        let (stats, beside) = best_rows(&logits, drafted, &beside).unwrap();
        assert_eq!(beside, [1.0, 2.0, 3.0, 4.0]);
        stats
    }

    #[test]
    fn the_largest_logits_are_listed_in_order_and_the_drafted_ones_after_them() {
        // whole groups only, a tail, fewer groups than are searched, and less than one group
        for (m, v) in [(1, 4096), (3, 5003), (2, 300), (2, 40)] {
            let values = logits(m, v);
            let worst = |row: usize| {
                let row = &values[row * v..][..v];
                (0..v).min_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32
            };
            let drafted: Vec<(usize, u32)> = (0..m).map(|row| (row, worst(row))).collect();
            for (row, stats) in best(&values, m, &drafted).into_iter().enumerate() {
                let own = &values[row * v..][..v];
                let mut order: Vec<u32> = (0..v as u32).collect();
                order.sort_by(|a, b| own[*b as usize].total_cmp(&own[*a as usize]).then(a.cmp(b)));
                let listed = order.iter().copied().take(BEST_LOGITS).chain([worst(row)]);
                let expected: Vec<(u32, f32)> = listed.map(|index| (index, own[index as usize])).collect();
                assert_eq!(stats.best, Best::Logits(expected), "row {row} of {m} × {v}");
                assert_eq!((stats.argmax, stats.max), (order[0], own[order[0] as usize]));
                let sum: f64 = own.iter().map(|x| f64::from(*x).exp()).sum();
                assert!((f64::from(stats.log_sum_exp) - sum.ln()).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_logit_that_is_not_finite_shows_in_the_sum() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = logits(2, 500);
            values[600] = wrong;
            let stats = best(&values, 2, &[]);
            assert!(stats[0].log_sum_exp.is_finite() && !stats[1].log_sum_exp.is_finite(), "{wrong}");
        }
    }

    #[test]
    fn tensors_are_read_in_their_order() {
        let tensor = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap();
        let read = numbers_of([&tensor(&[1.0]), &tensor(&[2.0, 3.0])]).unwrap();
        assert_eq!(read, [vec![1.0], vec![2.0, 3.0]]);
    }
}
