// What a recurrent layer reads of each row: a short causal convolution and SiLU of its queries, keys and values, queries
// and keys of length one, and each value head's decay and rate. They go to rings of positions, with the row before the
// convolution. One workgroup a head and row, and one more for decays and rates; rows follow each other.
// dims: a = (key heads, value heads, width of a key, width of a value); b = (taps, width of a row of `projected`, where α
// and then β begin in it, positions of a ring)
@group(0) @binding(2) var<storage, read> projected: array<f32>;     // [m][queries, keys, values, …, α, β]
@group(0) @binding(3) var<storage, read> taps: array<f32>;          // [channels][taps], the last is the row's own
@group(0) @binding(4) var<storage, read> heads: array<f32>;         // [−e^A_log of all, bias of α of all]
@group(0) @binding(5) var<storage, read_write> raw: array<f32>;     // [ring][channels], before the convolution
@group(0) @binding(6) var<storage, read_write> mixed: array<f32>;   // [ring][channels]
@group(0) @binding(7) var<storage, read_write> rates: array<f32>;   // [ring][kept share of all, rate of all]
var<workgroup> tree: array<f32, 64>;

// ln(1 + x) for x of at least 0: a series, or Cephes' logf.
fn log_of_one_and(x: f32) -> f32 {
    if x < 0.0009765625 { return x * (1.0 - x * (0.5 - x * 0.333333333)); }
    let bits = bitcast<u32>(1.0 + x);
    var e = f32(i32(bits >> 23u) - 126);
    var m = bitcast<f32>((bits & 0x007fffffu) | 0x3f000000u); // 0.5 … 1
    if m < 0.707106781 {
        e -= 1.0;
        m = (m + m) - 1.0;
    } else {
        m = m - 1.0;
    }
    let z = m * m;
    var y = 0.070376836292;
    y = y * m - 0.1151461031;
    y = y * m + 0.116769987;
    y = y * m - 0.12420140846;
    y = y * m + 0.14249322787;
    y = y * m - 0.16668057665;
    y = y * m + 0.20000714765;
    y = y * m - 0.24999993993;
    y = y * m + 0.33333331174;
    y = y * m * z;
    y = y - 0.00021219444 * e;
    y = y - 0.5 * z;
    return (m + y) + 0.693359375 * e;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let keys = dims.a.x; let values = dims.a.y; let dk = dims.a.z; let dv = dims.a.w;
    let count = dims.b.x; let width = dims.b.y; let ring = dims.b.w;
    let channels = 2u * keys * dk + values * dv;
    let row = wg.y;
    let here = (run.base + row) % ring;
    if wg.x == 2u * keys + values {
        for (var h = t; h < values; h += 64u) {
            let alpha = projected[row * width + dims.b.z + h] + heads[values + h];
            var soft = alpha;
            if alpha <= 20.0 { soft = log_of_one_and(exp_fixed(alpha)); }
            rates[here * 2u * values + h] = exp_fixed(heads[h] * soft);
            rates[here * 2u * values + values + h] = 1.0 / (1.0 + exp_fixed(-projected[row * width + dims.b.z + values + h]));
        }
        return;
    }
    let is_value = wg.x >= 2u * keys;
    let wide = select(dk, dv, is_value);
    let first = select(wg.x * dk, 2u * keys * dk + (wg.x - 2u * keys) * dv, is_value);
    var squares = 0.0;
    for (var i = t; i < wide; i += 64u) {
        let channel = first + i;
        var sum = 0.0;
        for (var tap = 0u; tap < count; tap++) {
            let back = count - 1u - tap; // rows before this one
            var x = 0.0;
            if back <= row {
                x = projected[(row - back) * width + channel];
            } else if back <= run.base + row {
                x = raw[((run.base + row - back) % ring) * channels + channel];
            }
            sum += taps[channel * count + tap] * x;
        }
        let value = sum / (1.0 + exp_fixed(-sum));
        mixed[here * channels + channel] = value;
        raw[here * channels + channel] = projected[row * width + channel];
        squares += value * value;
    }
    if is_value { return; }
    tree[t] = squares;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step /= 2u) {
        if t < step { tree[t] += tree[t + step]; }
        workgroupBarrier();
    }
    let scale = select(1.0, 1.0 / sqrt(f32(dk)), wg.x < keys);
    let factor = scale / sqrt(tree[0] + 1e-6);
    for (var i = t; i < wide; i += 64u) { mixed[here * channels + first + i] *= factor; }
}
