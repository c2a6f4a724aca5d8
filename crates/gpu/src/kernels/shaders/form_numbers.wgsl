// Eight weights of one row and output as numbers: a quarter of 32.
struct Block { low: vec4<f32>, high: vec4<f32> }
const STEPS = 4u;
