// The end of a block that adds an input for each token: x += norm(y), y being the output of the feed-forward layer; then
// y = project · (GELU(gate · x) · input) and x = (x + norm(y)) · scale; and the norm of x for the next block if there is
// one, as numbers and as codes. Both norms are of a whole row, and both matrices are small, so one workgroup computes a
// row from end to end: sums are those of matrix.wgsl, norms those of norm_add.wgsl, bit for bit.
// dims: a = (d, blocks along d, width, width of a row of inputs); b = (where the block's begin in it, 1 if there is a next
// norm, blocks along width, 0); c = (eps, scale, 0, 0)
@group(0) @binding(2) var<storage, read> weights: array<Stored>;          // gate: [width][blocks][words]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;
@group(0) @binding(4) var<storage, read> up_weights: array<Stored>;       // project: [d][blocks][words]
@group(0) @binding(5) var<storage, read> up_scales: array<u32>;
@group(0) @binding(6) var<storage, read> inputs: array<f32>;              // [m][blocks][width]
@group(0) @binding(7) var<storage, read> norms: array<f32>;               // [of the layer, of the input, next][d]
@group(0) @binding(8) var<storage, read_write> y: array<f32>;             // [m][d]
@group(0) @binding(9) var<storage, read_write> x: array<f32>;             // [m][d]
@group(0) @binding(10) var<storage, read_write> values: array<f32>;       // [m][d]
@group(0) @binding(11) var<storage, read_write> codes: array<u32>;        // [m][d / 4]
@group(0) @binding(12) var<storage, read_write> scales: array<vec4<f32>>; // [m][d / 32]
const LANES = 16u;
const AT_ONCE = 64u; // outputs: four of each group of lanes
var<workgroup> partial: array<f32, 1024>; // [4][256]
const WORKGROUP = 256u;

fn x_value(at: u32) -> vec4<f32> {
    return vec4<f32>(values[4u * at], values[4u * at + 1u], values[4u * at + 2u], values[4u * at + 3u]);
}
fn x_code(at: u32) -> vec4<u32> { return vec4<u32>(codes[4u * at], codes[4u * at + 1u], codes[4u * at + 2u], codes[4u * at + 3u]); }
fn x_scale(at: u32) -> vec4<f32> { return scales[at]; }

// Writes before it are seen by the whole workgroup after it.
fn wait() {
    storageBarrier();
    workgroupBarrier();
}

fn block_of(is_project: bool, n: u32, b: u32, step: u32) -> Block {
    if is_project { return up_block(n, b, step); }
    return load_block(n, b, step);
}

// Sums of outputs n, n + 16, n + 32 and n + 48 of `all` over a row's activations, which begin at block `first`; they are in
// `partial` at the first lane of the group, 256 apart.
fn add_up(is_project: bool, n: u32, all: u32, first: u32, blocks: u32, t: u32) {
    let lane = t % LANES;
    //each o
    let n_$o = min(n + 16u * $o, all - 1u);
    var sum_$o = 0.0;
    //end o
    for (var b = lane; b < blocks; b += LANES) {
        for (var step = 0u; step < STEPS; step++) {
            let input = load_input(first + b, step);
            //each o
            sum_$o = add_product(sum_$o, block_of(is_project, n_$o, b, step), input);
            //end o
        }
    }
    //each o
    partial[256u * $o + t] = sum_$o;
    //end o
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if lane < step {
            //each o
            partial[256u * $o + t] += partial[256u * $o + t + step];
            //end o
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let d = dims.a.x;
    let width = dims.a.z;
    let row = wg.x * d;
    let first = row / 32u;
    let group = t / LANES;
    let lane = t % LANES;
    var sum = 0.0;
    for (var i = row + 4u * t; i < row + d; i += 4u * WORKGROUP) {
        sum += y[i] * y[i]; sum += y[i + 1u] * y[i + 1u]; sum += y[i + 2u] * y[i + 2u]; sum += y[i + 3u] * y[i + 3u];
    }
    let of_layer = inverse_size(t, sum, d);
    for (var i = t; i < d; i += 256u) {
        let added = x[row + i] + y[row + i] * of_layer * norms[i];
        x[row + i] = added;
        values[row + i] = added;
    }
    wait();
    quantise_stored(t, first, d / 32u);
    wait();
    // y is read: it takes the gated inputs, and then the output
    for (var n = 0u; n < width; n += AT_ONCE) {
        add_up(false, n + group, width, first, dims.a.y, t);
        let own = n + group + 16u * lane;
        if lane < 4u && own < width {
            let g = partial[256u * lane + t - lane];
            let z = 1.59576912 * (g + 0.044715 * g * g * g);
            y[row + own] = g / (1.0 + exp_fixed(-z)) * inputs[wg.x * dims.a.w + dims.b.x + own];
        }
        workgroupBarrier();
    }
    wait();
    for (var i = t; i < width; i += 256u) { values[row + i] = y[row + i]; }
    wait();
    quantise_stored(t, first, width / 32u);
    wait();
    for (var n = 0u; n < d; n += AT_ONCE) {
        add_up(true, n + group, d, first, dims.b.z, t);
        let own = n + group + 16u * lane;
        if lane < 4u && own < d { y[row + own] = partial[256u * lane + t - lane]; }
        workgroupBarrier();
    }
    wait();
    sum = 0.0;
    for (var i = row + 4u * t; i < row + d; i += 4u * WORKGROUP) {
        sum += y[i] * y[i]; sum += y[i + 1u] * y[i + 1u]; sum += y[i + 2u] * y[i + 2u]; sum += y[i + 3u] * y[i + 3u];
    }
    let of_input = inverse_size(t, sum, d);
    for (var i = t; i < d; i += 256u) { x[row + i] = (x[row + i] + y[row + i] * of_input * norms[d + i]) * dims.c.y; }
    wait();
    if dims.b.y == 0u { return; }
    sum = 0.0;
    for (var i = row + 4u * t; i < row + d; i += 4u * WORKGROUP) {
        sum += x[i] * x[i]; sum += x[i + 1u] * x[i + 1u]; sum += x[i + 2u] * x[i + 2u]; sum += x[i + 3u] * x[i + 3u];
    }
    let next = inverse_size(t, sum, d);
    for (var i = t; i < d; i += 256u) { values[row + i] = x[row + i] * next * norms[2u * d + i]; }
    wait();
    quantise_stored(t, first, d / 32u);
}
