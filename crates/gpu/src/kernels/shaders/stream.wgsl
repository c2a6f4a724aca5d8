// Reads a buffer once and does nothing else: how fast the device reads its memory. Each thread reads every so many
// words, neighbours neighbouring words, and stores what keeps the compiler from leaving the reads out.
// dims: a = (words of 16 bytes, threads, 0, 0)
@group(0) @binding(2) var<storage, read> memory: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> sums: array<u32>; // one a thread

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let thread = 256u * wg.x + t;
    var sum = vec4<u32>(0u);
    for (var i = thread; i < dims.a.x; i += dims.a.y) { sum ^= memory[i]; }
    sums[thread] = (sum.x ^ sum.y) ^ (sum.z ^ sum.w);
}
