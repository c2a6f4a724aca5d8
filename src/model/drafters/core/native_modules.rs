//! The draft modules in a target's own files, on the native kernels: as its family's plans say.

use crate::model::drafters::core;
use crate::model::interfaces::{LoadContext, Modules};
use crate::model::native::{NativeLlama, NativeMtp};
use crate::model::plan::OwnModule;
use crate::model::{Model, ModelError};

/// Loads the modules; `None` if the family never has any.
pub(in crate::model) fn native_modules(
    target: &NativeLlama,
    context: &LoadContext<'_>,
) -> Option<Result<Modules, ModelError>> {
    let plans = context.config.drafting(context.source).own?;
    Some(plans.and_then(|plans| load(target, context, &plans)))
}

fn load(target: &NativeLlama, context: &LoadContext<'_>, plans: &[OwnModule]) -> Result<Modules, ModelError> {
    let LoadContext { source, config, .. } = *context;
    let vocab = if config.trims_draft_vocab(false) { context.draft_vocab()? } else { None };
    let module = |(index, plan)| NativeMtp::own(target, (source, index, plan), vocab.as_deref());
    let modules = plans.iter().enumerate().map(module).collect::<Result<Vec<_>, _>>()?;
    let what = match modules.len() {
        1 => "its own module".to_owned(),
        count => format!("its own {count} modules"),
    };
    Ok(core::modules(modules, format!("{} ({what})", source.name()), &target.spec().dtype))
}
