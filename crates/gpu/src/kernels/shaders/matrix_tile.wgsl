// out (+)= weights · activations, for prompts: 64 outputs of 64 rows a workgroup. Buffers are those of matrix.wgsl.
fn load_column(first: u32, column: u32, b: u32, step: u32) -> Block {
    return load_block(min(first + column, dims.a.x - 1u), b, step);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    prepare(t);
    var sums = sums_of(t, wg.x * TILE, wg.z * TILE);
    for (var i = 0u; i < 4u; i++) {
        let row = wg.z * TILE + t / 16u + 16u * i;
        for (var j = 0u; j < 4u; j++) {
            let own = wg.x * TILE + t % 16u + 16u * j;
            if row < run.m && own < dims.a.x {
                let at = row * dims.a.z + dims.a.w + own;
                if dims.b.x == 1u { out[at] += sums[i][j]; } else { out[at] = sums[i][j]; }
            }
        }
    }
}
