//! Prints, last of the tests and visibly, which tests this run left out and why.

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return; // what other test runners ask
    }
    let gpu = missing_gpu();
    let all = [
        gpu.map(|why| format!("the tests on a GPU: {why}")),
        std::env::var_os("DRAFTSCOPE_OFFLINE")
            .map(|_| "the tests on the real model: DRAFTSCOPE_OFFLINE is set".to_owned()),
    ];
    for left_out in all.into_iter().flatten() {
        println!("left out: {left_out}");
    }
}

#[cfg(feature = "gpu")]
fn missing_gpu() -> Option<&'static str> {
    draftscope::model::gpu::adapters().is_empty().then_some(
        "there is no Vulkan, Metal or DirectX 12 driver; on Linux the package mesa-vulkan-drivers suffices, without a GPU too",
    )
}

#[cfg(not(feature = "gpu"))]
fn missing_gpu() -> Option<&'static str> {
    Some("this build has no GPU backend (feature gpu)")
}
