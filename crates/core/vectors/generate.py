#!/usr/bin/env python3
"""Makes gauss.txt, normals.txt, forms.txt and gradients.txt from the text of docs/noise-spec.md alone.

This is a second implementation of the specification, written to be independent of the Rust one: plain integers and exact
rational arithmetic, every rounding done by hand, standard library only. `generate.py --check` fails if the files differ.
"""
import json
import math
import struct
import sys
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).parent


# ---- correctly rounded binary formats ------------------------------------------------------------------------------
def to_bits(value, precision, min_exp, max_exp):
    """Nearest-even (exponent field, mantissa field) of an exact rational, without the sign; infinity above the range."""
    if value == 0:
        return 0
    exponent = max(floor_log2(value), min_exp)
    scaled = value / Fraction(2) ** (exponent - precision + 1)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1):
        whole += 1
    # A subnormal has exponent field 0 and no hidden bit; adding integers carries into the exponent by itself.
    bits = ((exponent - min_exp) << (precision - 1)) + whole
    infinity = (max_exp - min_exp + 2) << (precision - 1)
    return min(bits, infinity)


def floor_log2(value):
    estimate = value.numerator.bit_length() - value.denominator.bit_length()
    return estimate if Fraction(2) ** estimate <= value else estimate - 1


def f32(value):
    """The f32 nearest to an exact rational, as bits."""
    sign = 0x80000000 if value < 0 else 0
    return sign | to_bits(abs(Fraction(value)), 24, -126, 127)


def exact(bits):
    """The rational that f32 bits stand for."""
    return Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def add(a, b):
    return f32(exact(a) + exact(b))


def mul(a, b):
    return f32(exact(a) * exact(b))


def fma(a, b, c):
    return f32(exact(a) * exact(b) + exact(c))


def neg(a):
    return a ^ 0x80000000


def sqrt(a):
    """The square root, correctly rounded: an integer root with far more bits than needed, and a sticky bit if it was not exact."""
    value = exact(a)
    shift = 160
    scaled = (value.numerator << (2 * shift)) // value.denominator
    root = math.isqrt(scaled)
    sticky = 0 if root * root == scaled and (value.numerator << (2 * shift)) % value.denominator == 0 else 1
    return f32(Fraction(2 * root + sticky, 2 << shift))


def f32_of_f64(value):
    return f32(Fraction(value))


# ---- the specification ---------------------------------------------------------------------------------------------
MASK = 0xFFFFFFFF


def rotl(x, n):
    return (x << n | x >> (32 - n)) & MASK


def chacha(key, rounds, stream, block):
    state = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key))
    state += [block & MASK, block >> 32, stream & MASK, stream >> 32]
    x = state[:]

    def quarter(a, b, c, d):
        x[a] = (x[a] + x[b]) & MASK
        x[d] = rotl(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotl(x[b] ^ x[c], 12)
        x[a] = (x[a] + x[b]) & MASK
        x[d] = rotl(x[d] ^ x[a], 8)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotl(x[b] ^ x[c], 7)

    for _ in range(rounds // 2):
        quarter(0, 4, 8, 12), quarter(1, 5, 9, 13), quarter(2, 6, 10, 14), quarter(3, 7, 11, 15)
        quarter(0, 5, 10, 15), quarter(1, 6, 11, 12), quarter(2, 7, 8, 13), quarter(3, 4, 9, 14)
    return [(a + b) & MASK for a, b in zip(x, state)]


LOG = [0xC0000000, 0x3F7FFF5F, 0xBF2AD1EA, 0x3EF98553, 0xBF070C70, 0xBEB99EA7, 0xC01ACF67, 0xC051FBC8, 0xC0351EC0]
SIN = [0xB33BBD2E, 0xBF255DDF, 0x3DA32FE2, 0xBB96DEC9]
COS = [0x3F800000, 0xBF9DE9E6, 0x3E81E0DC, 0xBCAADBE7, 0x3A6B4255]
MINUS_2_LN_2, HALF_PI = 0xBFB17218, 0x3FC90FDB
ONE = 0x3F800000


def horner(coefs, x):
    result = coefs[-1]
    for coef in reversed(coefs[:-1]):
        result = fma(result, x, coef)
    return result


def signed(word):
    return word - (1 << 32) if word >> 31 else word


def radius(word):
    x = signed(word | 1)
    u = f32(Fraction(f32_int(x)) * Fraction(1, 1 << 32))
    if x < 0:
        return radius_of(0, u)
    return radius_below_half(u)


def f32_int(value):
    """An integer rounded to f32, as an exact rational."""
    return exact(f32(Fraction(value)))


def tail_radius(word, first, second):
    if word > 0:
        return radius_below_half(f32(f32_int(word << 32 | first | 1) * Fraction(1, 1 << 64)))
    return radius_below_half(f32(f32_int(first << 32 | second | 1) * Fraction(1, 1 << 96)))


def radius_below_half(u):
    exponent = (u >> 23) - 126
    mantissa = u & 0x007FFFFF | 0x3F000000
    return radius_of(f32(Fraction(exponent)), add(mantissa, neg(ONE)))


def radius_of(e, f):
    return sqrt(fma(e, MINUS_2_LN_2, mul(horner(LOG, f), f)))


def sin_cos(word):
    t = f32(f32_int(signed((word << 2 | 2) & MASK)) * Fraction(1, 1 << 32))
    y = mul(t, t)
    return fma(t, HALF_PI, mul(horner(SIN, y), t)), horner(COS, y)


def pair(r, angle_word):
    s, c = sin_cos(angle_word)
    c ^= angle_word << 1 & 0x80000000
    rs, rc = mul(r, s), mul(r, c)
    return (rs, rc) if angle_word >> 31 else (rc, rs)


def position(coord):
    tile, r = divmod(coord, 512)
    quad, lane, j = r // 128, r % 128 // 4, r % 4
    return 32 * tile + lane, 4 * quad + j


def normal(key, rounds, stream, coord):
    block, word = position(coord)
    words = chacha(key, rounds, stream, block)
    first = word - word % 2
    r = words[first]
    if r < 1 << 16:
        size = tail_radius(r, *chacha(key, rounds, stream | 1 << 63, block)[first : first + 2])
    else:
        size = radius(r)
    return pair(size, words[first + 1])[word % 2]


def row(family, incarnation, index):
    return family << 56 | incarnation << 40 | index


# ---- forms ---------------------------------------------------------------------------------------------------------
FAMILIES = {"step": 0, "tree_node": 1}


def trajectory(incarnations, rounds, form, coord, steps):
    """`incarnations`: (first step, key) of each incarnation of the run."""

    def incarnation(step):
        return max(number for number, (first, _) in enumerate(incarnations) if first <= step)

    def z_of(family, first_use, index):
        number = incarnation(first_use)
        return normal(incarnations[number][1], rounds, row(family, number, index), coord)

    def z(step):
        return z_of(0, step, step)

    kernel, outputs, buffers = form["kernel"], [], None
    born = {}
    for step in range(steps):
        age = step % form["restart_every"] if "restart_every" in form else step
        if kernel["kind"] == "blt":
            scale = [f32_of_f64(v) for v in kernel["scale"]]
            decay = [f32_of_f64(v) for v in kernel["decay"]]
            if age == 0:
                buffers = [0] * len(scale)
            out = z(step)
            for a, m in zip(scale, buffers):
                out = fma(neg(a), m, out)
            buffers = [fma(l, m, out) for l, m in zip(decay, buffers)]
        elif kernel["kind"] == "ring":
            coefs = kernel["toeplitz"] if "toeplitz" in kernel else kernel["varying"][step]
            out = z(step)
            for a, coef in reversed(list(enumerate(coefs[:age], start=1))):
                out = fma(neg(f32_of_f64(coef)), outputs[step - a], out)
        else:
            if "listed" in kernel:
                terms = []
                for term in kernel["listed"][step]:
                    first = born.setdefault((term["family"], term["index"]), step)
                    terms.append((z_of(FAMILIES[term["family"]], first, term["index"]), term["weight"]))
            else:
                weights = kernel["toeplitz"] if "toeplitz" in kernel else kernel["varying"][step]
                terms = [(z(step - a), w) for a, w in enumerate(weights[: age + 1])]
            out = 0
            for value, weight in terms:
                out = fma(f32_of_f64(weight), value, out)
        outputs.append(out)
    return outputs


# ---- the files -----------------------------------------------------------------------------------------------------
KEY = bytes((37 * i + 11) % 256 for i in range(32))
LATER_KEYS = [bytes((41 * i + 7 * incarnation) % 256 for i in range(32)) for incarnation in (1, 2)]


def hexes(values):
    return ",".join(f"{value:08x}" for value in values)


def gauss_lines():
    yield "# source: generate.py, exact rational arithmetic"
    words = [0x00010000, 0x00010001, 0x00ABCDEF, 0x12345678, 0x3FFFFFFF, 0x55555555, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000]
    words += [0x80000001, 0x9C5F1234, 0xA0000000, 0xB504F333, 0xC0000000, 0xE1234567, 0xFFFF0000, 0xFFFFFFFE, 0xFFFFFFFF]
    for word in words:
        yield f"radius word={word:08x} bits={radius(word):08x}"
    tails = [(1, 0, 9), (1, 1, 9), (0x1234, 0x89ABCDEF, 9), (0xFFFF, 0xFFFFFFFF, 9), (1, 0xFFFFFFFF, 0)]
    tails += [(0, 0, 0), (0, 0, 1), (0, 0, 0xFFFFFFFF), (0, 1, 0), (0, 0x1234567, 0x89ABCDEF), (0, 0xFFFFFFFF, 0xFFFFFFFF)]
    for words in tails:
        yield f"tail words={hexes(words)} bits={tail_radius(*words):08x}"
    angles = [0, 1, 0x0FFFFFFF, 0x10000000, 0x1FFFFFFF, 0x20000000, 0x2AAAAAAA, 0x3FFFFFFF, 0x40000000, 0x7654321F]
    angles += [0x80000000, 0x9ABCDEF0, 0xBFFFFFFF, 0xC0000000, 0xDEADBEEF, 0xFFFFFFFF]
    for word in angles:
        s, c = sin_cos(word)
        z0, z1 = pair(radius(0x3C6EF372), word)
        yield f"angle word={word:08x} sin={s:08x} cos={c:08x}"
        yield f"pair radius_word=3c6ef372 angle_word={word:08x} bits={z0:08x},{z1:08x}"


def normal_line(rounds, stream, coord, count):
    bits = [normal(KEY, rounds, stream, coord + i) for i in range(count)]
    return f"normals rounds={rounds} key={KEY.hex()} stream={stream:016x} coord={coord} bits={hexes(bits)}"


def normals_lines():
    yield "# source: generate.py; a row's first coordinates"
    for rounds in (8, 12, 20):
        yield normal_line(rounds, row(0, 0, 0), 0, 16)
    yield "# source: generate.py; the last coordinates of a tile and the first of the next"
    yield normal_line(12, row(0, 0, 5), 508, 8)
    yield normal_line(12, row(0, 0, 5), 126, 4)
    yield "# source: generate.py; block counter crossing 2^32 (coordinate 2^36)"
    yield normal_line(12, row(0, 0, 1), (1 << 36) - 4, 8)
    yield "# source: generate.py; every field of the row's name, the largest index"
    for family, incarnation, index in [(0, 1, 7), (1, 0, 7), (2, 0, 7), (1, 0xFFFF, (1 << 40) - 1)]:
        yield normal_line(12, row(family, incarnation, index), 1000, 4)
    yield "# source: generate.py; pairs whose radius word is below 2^16 and is extended from the tail stream"
    found, block = 0, 0
    while found < 3:
        words = chacha(KEY, 12, row(0, 0, 2), block)
        for first in range(0, 16, 2):
            if words[first] < 1 << 16:
                found += 1
                coord = block // 32 * 512 + first // 4 * 128 + block % 32 * 4 + first % 4
                yield normal_line(12, row(0, 0, 2), coord, 2)
        block += 1


def form_line(form, coord, steps=9, rounds=12, resumed_at=()):
    incarnations = [(0, KEY)] + list(zip(resumed_at, LATER_KEYS))
    bits = trajectory(incarnations, rounds, form, coord, steps)
    names = ",".join(f"{first}:{key.hex()}" for first, key in incarnations)
    text = json.dumps(form, separators=(",", ":"))
    return f"form rounds={rounds} incarnations={names} coord={coord} form={text} bits={hexes(bits)}"


def form_lines():
    scale = [0.29, 0.13, 0.06, 0.015, 0.011, 0.007, 0.003, 0.0012]
    decay = [0.22, 0.71, 0.944, 0.9957, 0.97, 0.5, 0.0, 0.9999]
    for buffers in (0, 1, 4, 8):
        yield f"# source: generate.py; BLT with {buffers} buffers"
        yield form_line({"kernel": {"kind": "blt", "scale": scale[:buffers], "decay": decay[:buffers]}}, 77)
    yield "# source: generate.py; restarts, incarnations, another number of rounds"
    blt = {"kind": "blt", "scale": scale[:2], "decay": decay[:2]}
    yield form_line({"kernel": blt, "restart_every": 4}, 513, rounds=8)
    yield form_line({"kernel": blt}, 513, rounds=20, resumed_at=(3, 7))
    yield "# source: generate.py; rings"
    coefs = [0.5, 0.375, 0.3125, 0.2734375]
    yield form_line({"kernel": {"kind": "ring", "toeplitz": coefs}}, 600)
    yield form_line({"kernel": {"kind": "ring", "toeplitz": coefs}, "restart_every": 5}, 601)
    varying = [[round(0.7 / (t + a + 1), 6) for a in range(min(t, 3))] for t in range(9)]
    yield form_line({"kernel": {"kind": "ring", "varying": varying}}, 602)
    wide = [round(0.8 / (a + 2), 6) for a in range(11)]
    yield form_line({"kernel": {"kind": "ring", "toeplitz": wide}}, 5800, steps=40)
    yield "# source: generate.py; regenerated rows"
    weights = [1.0, -0.5, -0.125, -0.0625, -0.0390625]
    yield form_line({"kernel": {"kind": "regenerate", "toeplitz": weights}}, 1023)
    yield form_line(
        {"kernel": {"kind": "regenerate", "toeplitz": weights}, "restart_every": 3}, 1023, resumed_at=(4,)
    )
    dense = [[round((-1) ** a / (1 + a + 0.1 * t), 6) for a in range(t + 1)] for t in range(9)]
    yield form_line({"kernel": {"kind": "regenerate", "varying": dense}}, 1024)
    listed = [
        [{"family": "tree_node", "index": t // 2, "weight": 0.75}, {"family": "step", "index": t, "weight": -0.3}]
        for t in range(9)
    ]
    yield form_line({"kernel": {"kind": "regenerate", "listed": listed}}, 2048, resumed_at=(5,))


# ---- the output grid -----------------------------------------------------------------------------------------------
def mix(x):
    x = (x ^ x >> 16) * 0x7FEB352D & MASK
    x = (x ^ x >> 15) * 0x846CA68B & MASK
    return x ^ x >> 16


def dither_word(key, rounds, step, coord):
    """Of a step in the first incarnation."""
    words = chacha(key, rounds, row(3, 0, step // 4), 0)[4 * (step % 4) :]
    tile, r = divmod(coord, 512)
    x = mix(((mix(tile & MASK ^ words[0]) ^ tile >> 32) + words[1]) & MASK)
    first, stride = (x + words[3]) & MASK, mix((x + words[2]) & MASK) | 1
    return (first + stride * r) & MASK


def grid_exponent(steps, smallest, largest):
    """Of a new plan; no scale here is near the end of the range of exponents."""
    finer = next((b for b in range(6, 12) if 4**b >= 17 * steps), 12)
    return min(max(floor_log2(smallest) - finer, floor_log2(largest) - 15), floor_log2(smallest) - 2)


def release(g, z, scale, exponent, word):
    """The f32 that stands for g after the noise z (bits) was added: an exact rational from an exact rational."""
    unit = Fraction(2) ** exponent
    s = f32(exact(scale) / unit)
    h = s & 0x7FFFFF | (127 - 35) << 23  # bits of an f32, as s is
    big = 12582912
    integer = exact(add(fma(s, z, f32(Fraction(big))), f32(Fraction(-big - 3))))
    a = fma(s, z, f32(-integer))
    fraction = exact(fma(f32(Fraction(signed(word))), h, a))
    assert 2 <= fraction < 4 and fraction * 2**22 % 1 == 0 and integer % 1 == 0
    noise = integer + fraction  # in units of the grid
    return exact(f32(exact(f32((g / unit + noise + Fraction(1, 2)) // 1)) * unit))


FORMATS = {"f32": (24, -126, 127, 32), "bf16": (8, -126, 127, 16), "f16": (11, -14, 15, 16)}


def value(bits, precision, min_exp, width):
    field, mantissa = bits >> (precision - 1) & ((1 << (width - precision)) - 1), bits & ((1 << (precision - 1)) - 1)
    size = mantissa if field == 0 else mantissa | 1 << (precision - 1)
    sign = -1 if bits >> (width - 1) else 1
    return sign * size * Fraction(2) ** (max(field, 1) - 1 + min_exp - precision + 1)


def add_line(name, step, scale, coord, before, plan_steps=1 << 20):
    precision, min_exp, max_exp, width = FORMATS[name]
    scale, sign, after = f32_of_f64(scale), 1 << (width - 1), []
    exponent = grid_exponent(plan_steps, exact(scale), exact(scale))
    for at, bits in enumerate(before, start=coord):
        z = normal(KEY, 12, row(0, 0, step), at)
        word = dither_word(KEY, 12, step, at)
        y = release(value(bits, precision, min_exp, width), z, scale, exponent, word)
        after.append(to_bits(abs(y), precision, min_exp, max_exp) | (sign if y < 0 else 0))
    texts = [",".join(f"{bits:0{width // 4}x}" for bits in values) for values in (before, after)]
    names = f"key={KEY.hex()} plan_steps={plan_steps} step={step} coord={coord} scale={scale:08x} grid_exponent={exponent}"
    return f"add type={name} rounds=12 {names} before={texts[0]} after={texts[1]}"


def gradient_lines():
    """Noise added to the first 16 coordinates of a row: around zero, one, subnormals, the end of the range, far beyond the noise."""
    for name, (precision, min_exp, _, width) in FORMATS.items():
        yield f"# source: generate.py; {name} gradients"
        hidden, sign = 1 << (precision - 1), 1 << (width - 1)
        one = (1 - min_exp) * hidden
        before = [0, one, one + 1, one | sign, one + 3, one + 5 | sign, one - hidden, one + 7 * hidden + 11]
        before += [1, 3 | sign, hidden - 1, hidden, hidden | sign, 2 * hidden + 1, one - 9 * hidden, one - 5 * hidden + 3]
        for scale in (0.75, 2.0**-9, 1e-4, 3e-8, 4097.0):
            yield add_line(name, 3, scale, 0, before)
    yield "# source: generate.py; dither words of several tiles and steps"
    single = [f32(Fraction(n, 8192)) for n in (0, 1, 3, -5, 4096, 8192, 12345, -700000)]
    for step, coord in [(0, 508), (4, 508), (7, (1 << 41) + 508), (6, 3 * 512 + 126)]:
        yield add_line("f32", step, 1.0, coord, single)
    yield "# source: generate.py; the grids of plans of fewer steps"
    for plan_steps in (8, 240, 241, 963, 964, 3855, 3856, 15420, 15421, 61680, 61681, 246723, 246724):
        yield add_line("f32", 7, 0.7, 508, single, plan_steps)


def main():
    different = []
    files = [
        ("gauss", gauss_lines()),
        ("normals", normals_lines()),
        ("forms", form_lines()),
        ("gradients", gradient_lines()),
    ]
    for name, lines in files:
        path, text = HERE / f"{name}.txt", "\n".join(lines) + "\n"
        if "--check" in sys.argv:
            different += [path.name] if path.read_text() != text else []
        else:
            path.write_text(text)
    if different:
        sys.exit(f"vectors differ from what the generator makes: {', '.join(different)}")


if __name__ == "__main__":
    main()
