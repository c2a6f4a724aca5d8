//! What models of Llama's layout compute.

use crate::nn::TransformerConfig;
use crate::plan::{Layer, MAX_MODULES, Plan, PlanFiles};

/// The plan of a model of these sizes, which announces so many draft modules. A module's layer follows the last one.
pub(super) fn plan(config: &TransformerConfig, announced: usize, files: PlanFiles<'_>) -> Plan {
    let module = |block| Layer::usual(config, block);
    Plan::llama(config).with_modules(files, (announced, MAX_MODULES), module)
}
