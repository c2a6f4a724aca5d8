// GELU of a gate times what the block adds for the token, as numbers and as codes. One workgroup a row.
// dims: a = (width, width of a row of inputs, where the block's begin in it, 0)
@group(0) @binding(2) var<storage, read> gates: array<f32>;              // [m][width]
@group(0) @binding(3) var<storage, read> inputs: array<f32>;             // [m][blocks][width]
@group(0) @binding(4) var<storage, read_write> values: array<f32>;       // [m][width]
@group(0) @binding(5) var<storage, read_write> codes: array<u32>;
@group(0) @binding(6) var<storage, read_write> scales: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let row = wg.x * dims.a.x;
    for (var block = t; block < dims.a.x / 32u; block += 64u) {
        for (var i = 32u * block; i < 32u * block + 32u; i++) {
            let g = gates[row + i];
            let z = 1.59576912 * (g + 0.044715 * g * g * g);
            values[row + i] = g / (1.0 + exp_fixed(-z)) * inputs[wg.x * dims.a.y + dims.a.z + i];
        }
        quantise(row / 32u + block);
    }
}
