//! What processor this is.

/// The processor's name as the system reports it, at most 100 characters; empty if it does not.
#[must_use]
pub fn name() -> String {
    let mut system = sysinfo::System::new();
    system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
    system.cpus().first().map_or_else(String::new, |cpu| cpu.brand().trim().chars().take(100).collect())
}
