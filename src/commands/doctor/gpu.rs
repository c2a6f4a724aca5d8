//! The GPUs, as `draftscope devices` lists them.
//!
//! Drivers are code of others, and a broken one can end or stop the process that loads it. So `devices --json` runs in a
//! process of its own, for a limited time.

use super::check::Check;

/// The adapters of this machine.
#[cfg(not(feature = "gpu"))]
pub(super) fn check() -> Check {
    Check::ok("GPU", "this build has no GPU backend; models run on the CPU")
}

#[cfg(feature = "gpu")]
pub(super) use listed::check;

#[cfg(feature = "gpu")]
mod listed {
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::time::Duration;

    use draftscope::model::gpu::DRIVER_ADVICE;
    use serde_json::{Value, json};

    use super::Check;

    /// Longest time that drivers may take to list their adapters. Usually it is less than a second.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// What to do about a driver that fails.
    const BROKEN: &str = "update the driver; until then start with --device cpu, which loads none";

    /// The adapters of this machine.
    pub(in super::super) fn check() -> Check {
        match adapters() {
            Ok(adapters) => listed(&adapters),
            Err(why) => Check::fails("GPU", why, BROKEN),
        }
    }

    /// The output of `draftscope devices --json`, or why there is none.
    fn adapters() -> Result<Vec<Value>, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
        let mut command = Command::new(program);
        command.args(["devices", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("no process can be started: {error}"))?;
        let (sender, output) = mpsc::channel();
        let mut stdout = child.stdout.take();
        let read = move || {
            let mut text = String::new();
            let read = stdout.as_mut().map(|stdout| stdout.read_to_string(&mut text));
            let _ = sender.send(read.is_some_and(|read| read.is_ok()).then_some(text)); // nobody waits for it any more
        };
        std::thread::Builder::new().spawn(read).map_err(|error| format!("no thread can be started: {error}"))?;
        let text = received(&output);
        if text.is_err() {
            let _ = child.kill(); // it may have ended just now
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        let parsed = text?.filter(|_| status.success()).and_then(|text| serde_json::from_str(&text).ok());
        parsed.ok_or_else(|| format!("a driver fails: looking for GPUs ended with {status}"))
    }

    /// What the thread that reads the output sends, or why nothing comes.
    fn received(output: &mpsc::Receiver<Option<String>>) -> Result<Option<String>, String> {
        output.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("the drivers do not answer within {} s", PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => {
                "looking for GPUs ended on an internal error; please report it".to_owned()
            }
        })
    }

    /// A sentence about each adapter.
    fn listed(adapters: &[Value]) -> Check {
        let name = |adapter: &Value| {
            let text = |key: &str| adapter[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}, {}, driver {}", text("name"), text("kind"), text("api"), text("driver"))
        };
        let found = adapters.iter().map(name).collect::<Vec<_>>().join("; ");
        let is_software = |adapter: &&Value| adapter["kind"] == json!("software on the CPU");
        let gpus: Vec<_> = adapters.iter().filter(|adapter| !is_software(adapter)).collect();
        let check = match gpus.iter().find(|gpu| gpu["lacks"].is_null()) {
            Some(_) => Check::ok("GPU", found),
            None if adapters.is_empty() => {
                let found = "no Vulkan, Metal or DirectX 12 driver, so models run on the CPU";
                Check::note("GPU", found, format!("to use a GPU, {DRIVER_ADVICE}"))
            }
            None if gpus.is_empty() => {
                Check::note("GPU", found, "models run on the CPU; if there is a GPU, install its own driver")
            }
            None => {
                let lacks = gpus.iter().filter_map(|gpu| gpu["lacks"].as_str()).collect::<Vec<_>>().join("; ");
                Check::note("GPU", format!("{found} runs no model, because {lacks}"), "models run on the CPU")
            }
        };
        check.with(json!(adapters))
    }

    #[cfg(test)]
    mod tests {
        use super::super::super::check::Verdict;
        use super::*;

        fn adapter(name: &str, kind: &str, lacks: Option<&str>) -> Value {
            json!({ "name": name, "api": "vulkan", "kind": kind, "driver": "1.0", "lacks": lacks })
        }

        #[test]
        fn a_gpu_that_runs_models_is_well_and_the_others_are_explained() {
            let discrete = "discrete GPU";
            let fine = listed(&[adapter("Fast", discrete, None), adapter("Old", discrete, Some("it is old"))]);
            assert_eq!(fine.status, Verdict::Ok);
            assert!(fine.found.starts_with("Fast: discrete GPU, vulkan, driver 1.0; Old"), "{}", fine.found);
            let old = listed(&[adapter("Old", discrete, Some("it is old"))]);
            assert_eq!(old.status, Verdict::Note);
            assert!(old.found.ends_with("runs no model, because it is old"), "{}", old.found);
            let none = listed(&[]);
            assert!(none.advice.is_some_and(|advice| advice.contains(DRIVER_ADVICE)));
        }

        #[test]
        fn a_thread_that_ends_without_a_result_is_no_slow_driver() {
            let (sender, output) = mpsc::channel();
            drop(sender);
            assert!(received(&output).unwrap_err().contains("please report it"));
        }

        #[test]
        fn an_adapter_that_computes_on_the_cpu_is_no_gpu() {
            let kind = draftscope::model::gpu::AdapterKind::Software.name();
            let software = listed(&[adapter("llvmpipe", kind, None)]);
            assert_eq!(software.status, Verdict::Note);
            assert!(software.advice.is_some_and(|advice| advice.starts_with("models run on the CPU")));
        }
    }
}
