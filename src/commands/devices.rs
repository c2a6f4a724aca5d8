//! `devices`: the adapters that `--device gpu` can use.

use std::process::ExitCode;

use anyhow::Result;

/// Runs the subcommand.
#[cfg(feature = "gpu")]
pub(crate) fn run(json: bool) -> Result<ExitCode> {
    let all = draftscope::model::gpu::adapters();
    match json {
        true => super::output::print_json(&table::values(&all))?,
        false => super::output::print(table::Adapters(&all))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the subcommand.
#[cfg(not(feature = "gpu"))]
pub(crate) fn run(_json: bool) -> Result<ExitCode> {
    anyhow::bail!("this build has no GPU backend; build without `--no-default-features`")
}

#[cfg(feature = "gpu")]
mod table {
    use std::fmt::{self, Display};

    use draftscope::model::gpu::{AdapterInfo, DRIVER_ADVICE, RUNS, first_gpu};
    use serde_json::{Value, json};

    /// Adapters, for people.
    pub(super) struct Adapters<'a>(pub(super) &'a [AdapterInfo]);

    /// The adapter that runs if none is named.
    fn default(all: &[AdapterInfo]) -> Option<usize> {
        first_gpu(&all.iter().collect::<Vec<_>>())
    }

    /// The JSON form.
    pub(super) fn values(all: &[AdapterInfo]) -> Vec<Value> {
        let value = |(index, info): (usize, &AdapterInfo)| {
            json!({
                "index": index,
                "name": info.name,
                "api": info.api,
                "kind": info.kind.name(),
                "driver": info.driver,
                "max_buffer_bytes": info.max_buffer,
                "max_binding_bytes": info.max_binding,
                "subgroup_lanes": [info.subgroups.0, info.subgroups.1],
                "has_timestamps": info.has_timestamps,
                "lacks": info.lacks,
                "is_default": default(all) == Some(index),
            })
        };
        all.iter().enumerate().map(value).collect()
    }

    impl Display for Adapters<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0.is_empty() {
                writeln!(f, "No GPU driver was found: no Vulkan, Metal or DirectX 12. Models run on the CPU.")?;
                return write!(f, "To use a GPU: {DRIVER_ADVICE}.");
            }
            for (index, info) in self.0.iter().enumerate() {
                let end = if index + 1 < self.0.len() { "\n" } else { "" };
                let AdapterInfo { name, api, kind, driver, max_buffer, max_binding, subgroups, lacks, .. } = info;
                writeln!(f, "{index}  {name}: {}, {api}, driver {driver}", kind.name())?;
                writeln!(
                    f,
                    "   buffers up to {} MiB, {} MiB of one visible to a kernel; subgroups of {} to {} lanes",
                    max_buffer >> 20,
                    max_binding >> 20,
                    subgroups.0,
                    subgroups.1
                )?;
                let named = if default(self.0) == Some(index) { String::new() } else { format!(" --adapter {index}") };
                match lacks {
                    Some(lacks) => write!(f, "   runs no model: {lacks}")?,
                    None => write!(f, "   {RUNS} run here with --device gpu{named}")?,
                }
                if let Some(lacks) = info.lacks_for_layer_inputs().filter(|_| lacks.is_none()) {
                    write!(f, "\n   but not Gemma 4 E2B and E4B: {lacks}")?;
                }
                f.write_str(end)?;
            }
            Ok(())
        }
    }

    #[cfg(test)]
    mod tests {
        use draftscope::model::gpu::AdapterKind;

        use super::*;

        fn adapter(name: &str, kind: AdapterKind) -> AdapterInfo {
            AdapterInfo {
                name: name.to_owned(),
                api: "vulkan",
                kind,
                driver: "1.0".to_owned(),
                max_buffer: 2 << 30,
                max_binding: 128 << 20,
                subgroups: (8, 32),
                has_timestamps: true,
                storage_buffers: 16,
                lacks: None,
            }
        }

        #[test]
        fn adapters_are_listed_with_the_options_that_choose_them() {
            assert!(Adapters(&[]).to_string().starts_with("No GPU driver was found"));
            let odd = AdapterInfo { lacks: Some("it is old".into()), ..adapter("Odd", AdapterKind::Other) };
            let small = AdapterInfo { storage_buffers: 10, ..adapter("llvmpipe", AdapterKind::Software) };
            let all = [adapter("Fast", AdapterKind::Discrete), odd, small];
            let text = Adapters(&all).to_string();
            assert_eq!(
                text.lines().collect::<Vec<_>>(),
                [
                    "0  Fast: discrete GPU, vulkan, driver 1.0",
                    "   buffers up to 2048 MiB, 128 MiB of one visible to a kernel; subgroups of 8 to 32 lanes",
                    "   models with softmax routers or no experts, and without latent attention, run here with --device gpu",
                    "1  Odd: GPU, vulkan, driver 1.0",
                    "   buffers up to 2048 MiB, 128 MiB of one visible to a kernel; subgroups of 8 to 32 lanes",
                    "   runs no model: it is old",
                    "2  llvmpipe: software on the CPU, vulkan, driver 1.0",
                    "   buffers up to 2048 MiB, 128 MiB of one visible to a kernel; subgroups of 8 to 32 lanes",
                    "   models with softmax routers or no experts, and without latent attention, run here with --device gpu --adapter 2",
                    "   but not Gemma 4 E2B and E4B: it allows 10 storage buffers per kernel and 11 are needed",
                ]
            );
            assert_eq!(values(&all)[0]["is_default"], true);
            assert_eq!(values(&all[2..])[0]["is_default"], false, "software runs only if it is named");
            let later = [all[1].clone(), all[0].clone()];
            assert_eq!(values(&later)[1]["is_default"], true, "a GPU that runs no model is not the default");
        }
    }
}
