// Buffers of a product whose last outputs are in another form.
// dims: a = (rows of both, blocks along k, width of out, first row); b = (1 to add to out, workgroups along x, rows of the
// first form, 0)
@group(0) @binding(2) var<storage, read> weights: array<Stored>;        // [n][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;     // [n][words]
@group(0) @binding(4) var<storage, read> x_values: array<vec4<f32>>;    // [m][blocks][8]
@group(0) @binding(5) var<storage, read> x_codes: array<vec4<u32>>;     // [m][blocks][2]
@group(0) @binding(6) var<storage, read> x_scales: array<vec4<f32>>;    // [m][blocks]
@group(0) @binding(7) var<storage, read_write> out: array<f32>;         // [m][width]
@group(0) @binding(8) var<storage, read> up_weights: array<up_Stored>;  // as weights
@group(0) @binding(9) var<storage, read> up_scales: array<u32>;
fn x_value(at: u32) -> vec4<f32> { return x_values[at]; }
fn x_code(at: u32) -> vec4<u32> { return x_codes[at]; }
fn x_scale(at: u32) -> vec4<f32> { return x_scales[at]; }
fn prepare_both(t: u32) {
    prepare(t);
    up_prepare(t);
}
fn load_either(n: u32, b: u32, step: u32) -> Block {
    if n < dims.b.z { return load_block(n, b, step); }
    return up_block(n - dims.b.z, b, step);
}
fn add_either(n: u32, before: f32, w: Block, x: Input) -> f32 {
    if n < dims.b.z { return add_product(before, w, x); }
    return up_add_product(before, w, x);
}
