// What gate_up.wgsl computes, for prompts: 32 outputs of 64 rows a workgroup; columns are 32 of gate, then 32 of up.
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
    if t < TILE && first + t < run.m { quantise(((first + t) * dims.a.z + dims.a.w) / 32u + wg.x); }
}
