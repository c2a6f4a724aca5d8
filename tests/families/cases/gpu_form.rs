//! Targets whose passes on candle run as on a GPU, computed on the CPU.

use super::{
    CANDLE, Case, DEEPSEEK, EAGLE3_NORMED, GEMMA3, GEMMA4_ON_CANDLE, GLM4_MOE, HALVES, LLAMA, Limit, MIMO, QWEN3_MOE,
    QWEN35, Run,
};
use crate::support::PassForm;

/// The module's keys and values are halves too.
const OF_MODULE: Limit = Limit::relative(6.0 / 2048.0);
/// candle rounds rows that run together in another order, so a cached number may become the next half.
const CANDLE_ON_GPU: Run = Run {
    form: Some(PassForm::GPU),
    limit: Limit::relative(HALVES),
    rows: 5e-3,
    module: [OF_MODULE; 2],
    drafts: 5e-3,
    ..CANDLE
};
/// The native kernels run the whole passes of these families.
pub const LLAMA_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..LLAMA };
pub const MIMO_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..MIMO };
pub const GEMMA3_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..GEMMA3 };
pub const QWEN35_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..QWEN35 };
pub const DEEPSEEK_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..DEEPSEEK };
/// Scores are not scaled, so the rounding of keys to halves grows: other texts, and so do rows beside others.
pub const GEMMA4_CANDLE_ON_GPU: Case =
    Case { runs: &[Run { limit: Limit::relative(0.02), greedy: false, ..CANDLE_ON_GPU }], ..GEMMA4_ON_CANDLE };
pub const QWEN3_MOE_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..QWEN3_MOE };
pub const GLM4_MOE_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..GLM4_MOE };
pub const EAGLE3_ON_GPU: Case = Case { runs: &[CANDLE_ON_GPU], ..EAGLE3_NORMED };
