// Buffers of both products of a feed-forward layer, and what is between them and the next.
// dims: a = (rows of this part, blocks along k, width of out, first row of this part); b.x = 1 for GELU
@group(0) @binding(2) var<storage, read> weights: array<Stored>;          // gate: [n][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;
@group(0) @binding(4) var<storage, read> up_weights: array<Stored>;
@group(0) @binding(5) var<storage, read> up_scales: array<u32>;
@group(0) @binding(6) var<storage, read> x_values: array<vec4<f32>>;     // [m][blocks][8]
@group(0) @binding(7) var<storage, read> x_codes: array<vec4<u32>>;      // [m][blocks][2]
@group(0) @binding(8) var<storage, read> x_scales: array<vec4<f32>>;     // [m][blocks]
@group(0) @binding(9) var<storage, read_write> values: array<f32>;       // [m][width]
@group(0) @binding(10) var<storage, read_write> codes: array<u32>;       // [m][width / 4]
@group(0) @binding(11) var<storage, read_write> scales: array<vec4<f32>>; // [m][width / 32]
fn x_value(at: u32) -> vec4<f32> { return x_values[at]; }
fn x_code(at: u32) -> vec4<u32> { return x_codes[at]; }
fn x_scale(at: u32) -> vec4<f32> { return x_scales[at]; }
// act(g) · u, act(g) = g / (1 + e^-z): SiLU for z = g; GELU by its tanh formula for z = 2 √(2/π) (g + 0.044715 g³).
fn gated(g: f32, u: f32) -> f32 {
    let z = select(g, 1.59576912 * (g + 0.044715 * g * g * g), dims.b.x == 1u);
    return g / (1.0 + exp_fixed(-z)) * u;
}
