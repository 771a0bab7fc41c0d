// The ChaCha keystream, section 1 of docs/noise-spec.md. CPU twin: crates/core/src/chacha.rs.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

DEVICE u32 rotate_left(u32 x, u32 n) { return __funnelshift_l(x, x, n); }

// x + y on the pipe of multiply-adds, which has room where the pipe of logic and shifts is full: `one` is 1, as the compiler cannot
// know. With a literal 1 this is a plain addition.
DEVICE u32 plus(u32 x, u32 y, u32 one) { return x * one + y; }

DEVICE void quarter_round(u32 &a, u32 &b, u32 &c, u32 &d, u32 one) {
    a = plus(a, b, one); d = rotate_left(d ^ a, 16);
    c = plus(c, d, one); b = rotate_left(b ^ c, 12);
    a = plus(a, b, one); d = rotate_left(d ^ a, 8);
    c = plus(c, d, one); b = rotate_left(b ^ c, 7);
}

DEVICE void diagonal_round(u32 x[16], u32 one) {
    quarter_round(x[0], x[5], x[10], x[15], one);
    quarter_round(x[1], x[6], x[11], x[12], one);
    quarter_round(x[2], x[7], x[8], x[13], one);
    quarter_round(x[3], x[4], x[9], x[14], one);
}

DEVICE void double_round(u32 x[16], u32 one) {
    quarter_round(x[0], x[4], x[8], x[12], one);
    quarter_round(x[1], x[5], x[9], x[13], one);
    quarter_round(x[2], x[6], x[10], x[14], one);
    quarter_round(x[3], x[7], x[11], x[15], one);
    diagonal_round(x, one);
}

// What the blocks of a row share: the key, and the columns 2 and 3 after the first round, which hold no block number. The host makes
// the columns, x[2], x[6], x[10], x[14], then x[3], x[7], x[11], x[15]; half of the key follows from them.
struct RowKey {
    u32 key[8];
    u32 columns[8];
};

DEVICE void first_state(const u32 *key, u64 stream, u64 block, u32 x[16]) {
    const u32 initial[16] = {
        0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3],
        key[4], key[5], key[6], key[7], (u32)block, (u32)(block >> 32), (u32)stream, (u32)(stream >> 32)};
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = initial[i];
}

// The 16 words of one block.
//
// 8, 12 and 20 rounds are 2, 3 and 5 times four: a loop over fours costs three instructions per 96 and one kernel serves all
// three. Specialised on the rounds there would be three times the PTX to embed and to compile on the user's machine.
DEVICE void chacha_block(const u32 *key, u64 stream, u64 block, u32 four_rounds, u32 x[16]) {
    u32 initial[16];
    first_state(key, stream, block, initial);
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = initial[i];
#pragma unroll 1
    for (u32 i = 0; i < four_rounds; i++) {
        double_round(x, 1);
        double_round(x, 1);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] += initial[i];
}

// The same words; the first four rounds stand before the loop, since half of the first one is done.
DEVICE void chacha_block(const RowKey &row, u64 stream, u64 block, u32 four_rounds, u32 one, u32 x[16]) {
    u32 initial[16];
    first_state(row.key, stream, block, initial);
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = initial[i];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[4 * i + 2] = row.columns[i];
        x[4 * i + 3] = row.columns[4 + i];
    }
    quarter_round(x[0], x[4], x[8], x[12], one);
    quarter_round(x[1], x[5], x[9], x[13], one);
    diagonal_round(x, one);
    double_round(x, one);
#pragma unroll 1
    for (u32 i = 1; i < four_rounds; i++) {
        double_round(x, one);
        double_round(x, one);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = plus(x[i], initial[i], one);
}
