// What shuffles give each of 64 invocations: the numbers of those 1, 2, 4 and 8 after it in its subgroup.
@group(0) @binding(0) var<storage, read_write> found: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) t: u32) {
    found[t] = vec4<u32>(subgroupShuffleDown(t, 1u), subgroupShuffleDown(t, 2u), subgroupShuffleDown(t, 4u), subgroupShuffleDown(t, 8u));
}
