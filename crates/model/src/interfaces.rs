//! The traits of model families and draft modules, so that loading knows none of them by name.
//!
//! [`Family`] reads a family's config, [`FamilyConfig`] knows its sizes and its plan, [`LoadedTarget`] supplies
//! what drafters share with it. [`ModuleKind`] recognises draft modules in a folder of their own. The tables of both
//! are in [`families`](crate::families) and [`load`](crate::load).

mod family;
mod module_kind;
mod planned;

pub use self::module_kind::{CheckedModule, ModuleCard, ModuleKind};
pub use self::planned::{OwnModules, Planned, PlannedFamily};
pub(crate) use family::try_out;
pub use family::{
    Backend, Drafting, Family, FamilyConfig, LoadContext, LoadedTarget, Modules, Names, NoSharing, Progress,
    SharedWeights, TryOut,
};
