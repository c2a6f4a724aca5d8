// A head's queries, keys or values of one row: bias, norm of the head, rotation; keys and values go to the cache as
// halves, two to a word. One workgroup a head and row; of the first `rotary` values of a head, pairs are i and
// i + rotary / 2, the others are not turned.
// dims: a = (heads, kv_heads, head_dim, 1 if there is a bias | 2 if queries and keys are normed | 4 if values are);
// b = (width of a row of qkv in heads, rotary, 0, 0); c = (eps, scale of queries, 0, 0)
@group(0) @binding(2) var<storage, read> qkv: array<f32>;           // [m][width][head_dim]
@group(0) @binding(3) var<storage, read> bias: array<f32>;          // [heads + 2 kv_heads][head_dim]
@group(0) @binding(4) var<storage, read> head_norms: array<f32>;    // [queries, keys, values][head_dim]
@group(0) @binding(5) var<storage, read> angles: array<vec2<f32>>;  // [positions][rotary / 2] cosine, sine
@group(0) @binding(6) var<storage, read_write> q: array<f32>;       // [m][heads][head_dim]
@group(0) @binding(7) var<storage, read_write> keys: array<u32>;    // [positions][kv_heads][head_dim / 2]
@group(0) @binding(8) var<storage, read_write> values: array<u32>;
var<workgroup> head: array<f32, 512>;
var<workgroup> turned: array<f32, 512>;
var<workgroup> tree: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let heads = dims.a.x; let kv_heads = dims.a.y; let hd = dims.a.z; let half = hd / 2u;
    let row = wg.y;
    let pairs = dims.b.y / 2u;
    let all = dims.b.x;
    for (var i = t; i < hd; i += 64u) {
        head[i] = qkv[(row * all + wg.x) * hd + i];
        if (dims.a.w & 1u) == 1u { head[i] += bias[wg.x * hd + i]; }
    }
    workgroupBarrier();
    let is_value = wg.x >= heads + kv_heads;
    let is_key = wg.x >= heads && !is_value;
    let normed = select(2u, 4u, is_value);
    if (dims.a.w & normed) == normed {
        var sum = 0.0;
        for (var i = t; i < hd; i += 64u) { sum += head[i] * head[i]; }
        tree[t] = sum;
        workgroupBarrier();
        for (var step = 32u; step > 0u; step /= 2u) {
            if t < step { tree[t] += tree[t + step]; }
            workgroupBarrier();
        }
        let inverse = 1.0 / sqrt(tree[0] / f32(hd) + dims.c.x);
        let from_ = select(select(0u, hd, is_key), 2u * hd, is_value);
        for (var i = t; i < hd; i += 64u) { head[i] = head[i] * inverse * head_norms[from_ + i]; }
    }
    workgroupBarrier();
    for (var i = t; i < hd; i += 64u) {
        let scale = select(dims.c.y, 1.0, is_key);
        if is_value {
            turned[i] = head[i];
        } else if i < pairs {
            let angle = angles[position_of(row) * pairs + i];
            turned[i] = (head[i] * angle.x - head[pairs + i] * angle.y) * scale;
            turned[pairs + i] = (head[i] * angle.y + head[pairs + i] * angle.x) * scale;
        } else if i >= 2u * pairs {
            turned[i] = head[i] * scale;
        }
    }
    workgroupBarrier();
    if wg.x < heads {
        for (var i = t; i < hd; i += 64u) { q[(row * heads + wg.x) * hd + i] = turned[i]; }
        return;
    }
    for (var i = t; i < half; i += 64u) {
        let two = pack2x16float(vec2<f32>(turned[2u * i], turned[2u * i + 1u]));
        if is_key {
            keys[((run.base + row) * kv_heads + wg.x - heads) * half + i] = two;
        } else {
            values[((run.base + row) * kv_heads + wg.x - heads - kv_heads) * half + i] = two;
        }
    }
}
