@group(0) @binding(FIRST) var<storage, read> x_codes: array<vec4<u32>>;
@group(0) @binding(SECOND) var<storage, read> x_scales: array<vec4<f32>>;
fn x_code(at: u32) -> vec4<u32> { return x_codes[at]; }
fn x_scale(at: u32) -> vec4<f32> { return x_scales[at]; }
