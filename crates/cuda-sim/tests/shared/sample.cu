// Shared arrays and barriers. What NVRTC 12.0 makes of them (compute_70, C++14) is in sample.ptx, without the variables that
// the compiler adds and nothing uses.

struct alignas(16) Quad {
    float v[4];
};

// Each thread reads what a thread of another warp wrote, then what the first lane of another warp did.
extern "C" __global__ void __launch_bounds__(128) swap(float *out, const Quad *in, unsigned n) {
    __shared__ Quad tile[128];
    __shared__ float sums[4];
    __shared__ unsigned bias;
    unsigned t = threadIdx.x;
    if (t == 0)
        bias = n;
    tile[t] = in[blockIdx.x * 128 + t];
    __syncthreads();
    Quad q = tile[t ^ 33];
    float s = 0.f;
    for (int i = 0; i < 4; i++)
        s = __fmaf_rn(q.v[i], 2.f, s);
    __syncwarp();
    if ((t & 31) == 0)
        sums[t >> 5] = s;
    __syncthreads();
    s = __fadd_rn(__fadd_rn(s, sums[(t >> 5) ^ 1]), (float)bias);
    out[blockIdx.x * 128 + t] = s;
}

// A generic pointer, to shared or to global memory.
extern "C" __global__ void choose(float *out, const float *in) {
    __shared__ float own[64];
    unsigned t = threadIdx.x;
    own[t] = __fadd_rn(100.f, (float)t);
    __syncthreads();
    const float *from = t & 1 ? in : own;
    out[t] = from[63 - t];
}

// A loop with a barrier, in which a warp overwrites what another has read.
extern "C" __global__ void turns(unsigned *out, unsigned n) {
    __shared__ unsigned ring[96];
    unsigned t = threadIdx.x;
    ring[t] = t;
    for (unsigned i = 0; i < n; i++) {
        __syncthreads();
        unsigned next = ring[(t + 33) % 96] * 3;
        __syncthreads();
        ring[t] = next + i;
    }
    out[t] = ring[t];
}
