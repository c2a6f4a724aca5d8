@group(0) @binding(FIRST) var<storage, read> x_values: array<vec4<f32>>;
@group(0) @binding(SECOND) var<storage, read> no_scales: array<u32>;
fn x_value(at: u32) -> vec4<f32> { return x_values[at]; }
