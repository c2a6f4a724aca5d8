// Buffers of a product.
// dims: a = (rows of this part, blocks along k, width of out, first row of this part); b.x = 1 to add to out;
// b.y = workgroups along x
@group(0) @binding(2) var<storage, read> weights: array<Stored>;     // [n][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;  // [n][words]
@group(0) @binding(4) var<storage, read> x_values: array<vec4<f32>>; // [m][blocks][8]
@group(0) @binding(5) var<storage, read> x_codes: array<vec4<u32>>;  // [m][blocks][2]
@group(0) @binding(6) var<storage, read> x_scales: array<vec4<f32>>; // [m][blocks]
@group(0) @binding(7) var<storage, read_write> out: array<f32>;      // [m][width]
fn x_value(at: u32) -> vec4<f32> { return x_values[at]; }
fn x_code(at: u32) -> vec4<u32> { return x_codes[at]; }
fn x_scale(at: u32) -> vec4<f32> { return x_scales[at]; }
