// out (+)= weights · activations of up to ROWS rows: 16 lanes an output row, four output rows a workgroup. A lane takes
// every 16th block and adds products one after the other (drivers turn a + (b + c) into (a + b) + c), then a tree adds
// the lanes: the same sums in the same order for any number of rows.
// dims: a = (rows of this part, blocks along k, width of out, first row of this part); b.x = 1 to add to out;
// b.y = workgroups along x
@group(0) @binding(2) var<storage, read> weights: array<vec4<u32>>;  // [n][blocks][words / 4]
@group(0) @binding(3) var<storage, read> weight_scales: array<u32>;  // [n][blocks][words]
@group(0) @binding(4) var<storage, read> x_values: array<vec4<f32>>; // [m][blocks][8]
@group(0) @binding(5) var<storage, read> x_codes: array<vec4<u32>>;  // [m][blocks][2]
@group(0) @binding(6) var<storage, read> x_scales: array<vec4<f32>>; // [m][blocks]
@group(0) @binding(7) var<storage, read_write> out: array<f32>;      // [m][width]
const LANES = 16u;
var<workgroup> partial: array<f32, 64 * ROWS>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let lane = t % LANES;
    let n = (wg.y * dims.b.y + wg.x) * 4u + t / LANES;
    let first = wg.z * 8u;
    let blocks = dims.a.y;
    var sums: array<f32, ROWS>;
    if n < dims.a.x {
        for (var b = lane; b < blocks; b += LANES) {
            let block = load_block(n * blocks + b);
            for (var r = 0u; r < ROWS; r++) { sums[r] = dot_block(sums[r], block, (first + r) * blocks + b); }
        }
    }
    for (var r = 0u; r < ROWS; r++) { partial[64u * r + t] = sums[r]; }
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if lane < step {
            for (var r = 0u; r < ROWS; r++) { partial[64u * r + t] += partial[64u * r + t + step]; }
        }
        workgroupBarrier();
    }
    if lane == 0u && n < dims.a.x {
        for (var r = 0u; r < ROWS; r++) {
            if first + r < run.m {
                let at = (first + r) * dims.a.z + dims.a.w + n;
                if dims.b.x == 1u { out[at] += partial[64u * r + t]; } else { out[at] = partial[64u * r + t]; }
            }
        }
    }
}
