// What gate_up.wgsl computes, for prompts: 32 outputs of 64 rows a workgroup; columns are 32 of gate, then 32 of up.
const WORKGROUP = 256u;
fn load_column(first: u32, column: u32, b: u32, step: u32) -> Block {
    let n = first / 2u + column % 32u;
    if column < 32u { return load_block(n, b, step); }
    return up_block(n, b, step);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    let first = wg.z * TILE;
    var sums = sums_of(t, wg.x * TILE, first);
    for (var i = 0u; i < 4u; i++) {
        let row = first + t / 16u + 16u * i;
        if row < run.m {
            let at = row * dims.a.z + dims.a.w + wg.x * 32u + t % 16u;
            values[at] = gated(sums[i].x, sums[i].z);
            values[at + 16u] = gated(sums[i].y, sums[i].w);
        }
    }
    storageBarrier();
    workgroupBarrier();
    for (var start = first; start < first + TILE; start += BLOCKS_OF_WORKGROUP) {
        let row = start + t / 8u;
        let block = (min(row, run.m - 1u) * dims.a.z + dims.a.w) / 32u + wg.x;
        let at = 32u * block + 4u * (t % 8u);
        quantise(t, block, row < run.m, vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]));
    }
}
