// The ChaCha keystream, section 1 of docs/noise-spec.md. CPU twin: crates/core/src/chacha.rs.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

DEVICE u32 rotate_left(u32 x, u32 n) { return __funnelshift_l(x, x, n); }

DEVICE void quarter_round(u32 &a, u32 &b, u32 &c, u32 &d) {
    a += b; d = rotate_left(d ^ a, 16);
    c += d; b = rotate_left(b ^ c, 12);
    a += b; d = rotate_left(d ^ a, 8);
    c += d; b = rotate_left(b ^ c, 7);
}

DEVICE void double_round(u32 x[16]) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
}

// The 16 words of one block.
//
// 8, 12 and 20 rounds are 2, 3 and 5 times four: a loop over fours costs three instructions per 96 and one kernel serves all
// three. Specialised on the rounds there would be three times the PTX to embed and to compile on the user's machine.
DEVICE void chacha_block(const u32 *key, u64 stream, u64 block, u32 four_rounds, u32 x[16]) {
    const u32 initial[16] = {
        0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3],
        key[4], key[5], key[6], key[7], (u32)block, (u32)(block >> 32), (u32)stream, (u32)(stream >> 32)};
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = initial[i];
#pragma unroll 1
    for (u32 i = 0; i < four_rounds; i++) {
        double_round(x);
        double_round(x);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] += initial[i];
}
