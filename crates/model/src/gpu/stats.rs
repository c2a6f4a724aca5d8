//! Statistics of rows of logits from what a device computed of their stretches.

use draftscope_gpu::{STRETCH, Scored, Stretch};

use crate::{Best, RowStats};

// peaks are those of the engine's stretches, and the device lists as many logits as are shown
const _: () = assert!(STRETCH == crate::STRETCH && draftscope_gpu::BEST == crate::BEST_LOGITS);

/// Statistics of each row of so many logits.
pub(crate) fn of_rows(scored: &Scored, logits: usize) -> Vec<RowStats> {
    let rows = scored.stretches.chunks(logits.div_ceil(STRETCH).max(1)).enumerate();
    rows.map(|(row, stretches)| join(stretches, scored.best.get(row))).collect()
}

/// Joins the stretches of a row.
fn join(stretches: &[Stretch], listed: Option<&Vec<(u32, f32)>>) -> RowStats {
    let first = Stretch { max: f32::NEG_INFINITY, sum: 0.0, argmax: 0 };
    let best = stretches.iter().fold(&first, |best, stretch| if stretch.max > best.max { stretch } else { best });
    let total: f64 = stretches.iter().map(|s| f64::from(s.sum) * f64::from(s.max - best.max).exp()).sum();
    RowStats {
        argmax: best.argmax,
        max: best.max,
        log_sum_exp: best.max + total.ln() as f32,
        best: match listed {
            Some(listed) => Best::Logits(listed.clone()),
            None => Best::Peaks(stretches.iter().map(|stretch| stretch.max).collect()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_add_up_to_the_row() {
        let stretch = |max: f32, sum: f32, argmax| Stretch { max, sum, argmax };
        let stretches =
            vec![stretch(1.0, 2.0, 7), stretch(3.0, 1.5, 600), stretch(3.0, 1.0, 4), stretch(0.0, 1.0, 513)];
        let scored = Scored { stretches, best: vec![vec![(600, 3.0)], vec![(4, 3.0), (9, 2.0)]], ..Scored::default() };
        let rows = of_rows(&scored, 700);
        assert_eq!((rows[0].argmax, rows[1].argmax, rows[0].max), (600, 4, 3.0));
        assert!((rows[0].log_sum_exp - (3.0 + (1.5 + 2.0 * (-2.0f32).exp()).ln())).abs() < 1e-6);
        assert_eq!(rows[1].best, Best::Logits(vec![(4, 3.0), (9, 2.0)]));
        let rows = of_rows(&Scored { best: Vec::new(), ..scored }, 700);
        assert_eq!(rows[0].best, Best::Peaks(vec![1.0, 3.0]));
    }
}
