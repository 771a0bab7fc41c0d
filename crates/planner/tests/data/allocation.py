"""Oracle for balls in bins: a unit takes part at steps j, j + b, j + 2b, ... for one bin j, uniform among b.

The pair of distributions is P = (1/b) sum_j N(m_j, 1) against Q = N(0, 1), where only the Gram matrix K_jl = <m_j, m_l> matters. With
X ~ N(0, K) and W = (1/b) sum_j exp(X_j - K_jj / 2), the likelihood ratio under Q,
    add = E (W - e^eps)_+      is the hockey stick of P against Q,
    rem = E (1 - e^eps W)_+    that of Q against P.

Usage: python allocation.py small | middle | limits | epochs | real, which write allocation_{small,middle,limits,epochs,real}.txt.

 * small: b = 2 and 3. One normal is integrated in closed form (Black-Scholes), the others by the trapezoidal rule, which converges
   exponentially for analytic integrands that decay like normals. The error stated is the difference of two grids that interleave; the
   printed value is their mean, which is the rule of half the step. `check` compares some with mpmath's adaptive quadrature.
 * limits: b = 1 and constant K (one Gaussian mechanism, closed form with mpmath), and K = d I (mean of independent lognormals): the
   sub-distribution on [0, top] of a lattice, convolved directly (no transform, no difference), each lognormal split between neighbours of
   the lattice so that it keeps its mean, for lattices h, h/2, h/4 and extrapolated to h = 0.
 * middle: b = 4 to 16, importance-sampled Monte Carlo on Gram matrices of real strategies; mean and standard error.
 * epochs: random allocation redrawn in every epoch, independent noise, by Monte Carlo.
 * real: Monte Carlo at real sizes; the sigma at which max(add, rem) = delta, the worst error sigma * ||last row of A C^-1||, and their
   standard errors.

Importance sampling moves the mean of X by K a, which multiplies the density by exp(a'X - a'K a / 2): for add a mixture over vectors a near
one bin each (`shifts`), for rem a = -t 1/b. Unbiased, whatever a and t are.
Nothing here shares code or method with crates/planner/src/privacy/account/allocation.
"""
import math, os, sys
import numpy as np

erfc = np.frompyfunc(math.erfc, 1, 1)
def Phi(x): return 0.5 * erfc(-np.asarray(x) / math.sqrt(2)).astype(float)

def call(F, k, s):
    """E (Y - k)_+ for lognormal Y of mean F and log-standard-deviation s, any real k"""
    kp = np.where(k > 0, k, 1.0)
    d = np.log(F / kp) / s
    return np.where(k > 0, F * Phi(d + s / 2) - kp * Phi(d - s / 2), F - k)

def put(F, k, s):
    kp = np.where(k > 0, k, 1.0)
    d = np.log(F / kp) / s
    return np.where(k > 0, kp * Phi(s / 2 - d) - F * Phi(-d - s / 2), 0.0)

def small(K, eps, h=0.06):
    """(add, its error, rem, its error) for b = 2 or 3 by quadrature"""
    K = np.array(K, float)
    b = len(K)
    # The variable that is integrated in closed form has the largest variance given the others.
    inverse = np.linalg.inv(K)
    first = int(np.argmin(np.diag(inverse)))
    order = [i for i in range(b) if i != first] + [first]
    K = K[np.ix_(order, order)]
    L = np.linalg.cholesky(K)
    s = L[-1, -1]
    far = 13 + math.sqrt(K.max())
    scale = math.sqrt(K.max())
    h = min(h, s / scale / 1.6)
    results = []
    for offset in (0.0, 0.5):
        z = (np.arange(-int(13 / h) - 1, int(far / h) + 2) + offset) * h
        add = rem = 0.0
        for outer in ([None] if b == 2 else z):
            if b == 2:
                X = [L[0, 0] * z]
                mean = L[1, 0] * z
                weight = np.exp(-z * z / 2) * h / math.sqrt(2 * math.pi)
            else:
                if abs(outer) > far: continue
                X = [L[0, 0] * outer, L[1, 0] * outer + L[1, 1] * z]
                mean = L[2, 0] * outer + L[2, 1] * z
                weight = np.exp(-(z * z + outer * outer) / 2) * h * h / (2 * math.pi)
            others = sum(np.exp(x - K[i, i] / 2) for i, x in enumerate(X))
            F = np.exp(mean - K[-1, -1] / 2 + s * s / 2)
            add += float(np.sum(weight * call(F, b * math.exp(eps) - others, s))) / b
            rem += float(np.sum(weight * put(F, b * math.exp(-eps) - others, s))) / b * math.exp(eps)
        results.append((add, rem))
    (a0, r0), (a1, r1) = results
    return (a0 + a1) / 2, abs(a0 - a1) / 2, (r0 + r1) / 2, abs(r0 - r1) / 2

def check(K, eps, dps=30):
    """the same for b = 2 by mpmath's adaptive quadrature, without any closed form of the inner integral but Black and Scholes'"""
    import mpmath as mp
    mp.mp.dps = dps
    K = [[mp.mpf(float(v)) for v in row] for row in K]
    s = mp.sqrt(K[1][1] - K[0][1] ** 2 / K[0][0])
    root = mp.sqrt(K[0][0])
    def inner(z, c, sign):
        x = root * z
        F = mp.exp(K[0][1] / K[0][0] * x - K[1][1] / 2 + s * s / 2)
        k = 2 * c - mp.exp(x - K[0][0] / 2)
        if k <= 0: return F - k if sign > 0 else mp.mpf(0)
        d = mp.log(F / k) / s
        return sign * (F * mp.ncdf(sign * (d + s / 2)) - k * mp.ncdf(sign * (d - s / 2)))
    def total(c, sign):
        zero = (mp.log(2 * c) + K[0][0] / 2) / root
        cuts = sorted([mp.mpf(v) for v in range(-20, 21)] + ([zero] if abs(zero) < 20 else []))
        return mp.quad(lambda z: inner(z, c, sign) * mp.npdf(z), cuts) / 2
    return total(mp.exp(mp.mpf(float(eps))), 1), mp.exp(mp.mpf(float(eps))) * total(mp.exp(-mp.mpf(float(eps))), -1)

def triangle(K): return [float(K[i][j]) for i in range(len(K)) for j in range(i + 1)]

def row(eps, values, K): return " ".join([str(len(K)), repr(float(eps))] + [f"{v:.10e}" for v in values] + [repr(v) for v in triangle(K)])

HEADER = "# b eps add add_error rem rem_error K11 K21 K22 K31 ... (rows of the lower triangle), see allocation.py"

def random_gram(rng, kind, b):
    if kind == 0:                              # any non-negative vectors
        M = rng.random((b, rng.integers(b, b + 3))) ** 2
        return M @ M.T
    if kind == 1:                              # circular and a constant
        common, distance = rng.random() ** 2, lambda i, j: min((i - j) % b, (j - i) % b)
        rng.random((b, b))                     # not used; the file that is committed was made with this draw
        K = np.array([[0.9 ** distance(i, j) * 0.5 for j in range(b)] for i in range(b)])
        return K + common + np.eye(b) * rng.random() * 0.5
    if kind == 2: return np.full((b, b), 1.0) + np.diag(0.02 + 0.2 * rng.random(b))    # almost constant
    if kind == 3:                              # almost diagonal, equal or not
        d = np.ones(b) if rng.random() < 0.5 else np.exp(rng.normal(size=b))
        off = 0.03 * rng.random((b, b))
        return np.diag(d) + (off + off.T) * 0.5 * np.sqrt(np.outer(d, d)) * (1 - np.eye(b))
    if kind == 4:                              # very unequal diagonals
        d = np.exp(rng.uniform(-4.0, 0.0, b))
        M = rng.random((b, b)); C = M @ M.T
        C /= np.sqrt(np.outer(np.diag(C), np.diag(C)))
        return C * np.sqrt(np.outer(d, d))
    if kind == 5:                              # one pair far closer than the others
        M = np.eye(b); M[1] = M[0] * math.sqrt(0.99) + M[1] * 0.1
        return M @ M.T + 0.05 * rng.random()
    k = int(rng.integers(1, 5)); n = k * b - int(rng.integers(0, b)) if k > 1 else b    # a strategy, perhaps a partial epoch
    return gram(random_strategy(rng, n), n, b)

def random_strategy(rng, n):
    which = rng.integers(0, 4)
    if which == 0: return bisr(int(rng.integers(2, 9)), n)
    if which == 1: return blt([rng.uniform(0.05, 0.5)], [rng.uniform(0.5, 0.98)], n)
    if which == 2: return blt(rng.uniform(0.02, 0.25, 2), [rng.uniform(0.3, 0.6), rng.uniform(0.8, 0.99)], n)
    c = rng.random(n) * 0.85 ** np.arange(n); c[0] = 1.0
    return c

def invert(a, n):
    """coefficients of the reciprocal power series"""
    a = np.concatenate([a, np.zeros(max(0, n - len(a)))])[:n]
    c = np.zeros(n)
    for t in range(n):
        c[t] = ((t == 0) - np.dot(a[1:t + 1], c[t - 1::-1][:t] if t else [])) / a[0]
    return c

def bisr(p, n):
    a = np.zeros(n); a[0] = 1.0
    for i in range(1, min(p, n)): a[i] = a[i - 1] * (i - 1.5) / i          # (1 - x)^(1/2), cut
    return invert(a[:p], n)

def blt(scale, decay, n):
    t = np.arange(n - 1)
    return np.concatenate([[1.0], sum(a * l ** t for a, l in zip(scale, decay))])

def shift(x, n): return x ** np.arange(n)                                   # C^-1 = I - x shift

def gram(c, n, b):
    """K for a Toeplitz strategy and clip norm 1: m_j is the sum of the columns j, j + b, ... below n"""
    M = np.zeros((b, n))
    for j in range(b):
        for s in range(j, n, b): M[j, s:] += c[:n - s]
    return M @ M.T

def worst_error(c, n):
    """norm of the last row of A C^-1 for prefix sums"""
    return float(np.sqrt(np.sum(np.cumsum(invert(c, n)) ** 2)))

def write_small():
    rng = np.random.default_rng(20250711)
    out, worst, count = [HEADER], 0.0, {2: 0, 3: 0}
    while min(count[2] - 150, count[3] - 110) < 0:
        b = 2 if count[2] < 150 else 3
        K = random_gram(rng, int(rng.integers(0, 7)), b)
        K = K / np.diag(K).max() * math.exp(rng.uniform(math.log(0.02), math.log(9.0)))
        eps = math.exp(rng.uniform(math.log(0.02), math.log(8.0)))
        if np.linalg.eigvalsh(K)[0] < 1e-9 * K.max(): continue
        if math.sqrt(1 / np.diag(np.linalg.inv(K)).min() / K.max()) < (0.02 if b == 2 else 0.07): continue
        # Cheap: skip what has no delta worth a test.
        if eps > 0.2 + K.max() / 2 + 6.5 * math.sqrt(K.max()): continue
        a, ae, r, re = small(K, eps)
        if not (1e-13 < min(a, r) and max(a, r) < 0.95): continue
        worst = max(worst, ae / a, re / r)
        if max(ae / a, re / r) > 1e-9: continue    # smooth but too steep where the strike of the inner option passes 0
        count[b] += 1
        out.append(row(eps, (a, ae, r, re), K))
        if b == 2 and count[b] % 15 == 0:
            ma, mr = check(K, eps)
            print("mpmath", float(a / ma - 1), float(r / mr - 1), flush=True)
            assert abs(a / ma - 1) < 1e-10 and abs(r / mr - 1) < 1e-10
    open("allocation_small.txt", "w").write("\n".join(out) + "\n")
    print(count, "worst relative error", worst)

def log_mean_exp(Y):
    top = Y.max(axis=1)
    return top + np.log(np.mean(np.exp(Y - top[:, None]), axis=1))

def batches(rng, L, samples, size):
    """normals with covariance L L^T, in batches"""
    while samples > 0:
        count = min(size, samples)
        yield rng.standard_normal((count, len(L))) @ L.T
        samples -= count

def shifts(K, eps):
    """rows a_j = lambda q_j, so that X = K a_j is near the shortest way from bin j to W = e^eps: q_j solves q = softmax(lambda K q - diag / 2)"""
    b, half = len(K), np.diag(K) / 2
    starts = np.arange(b) if b <= 100 else np.array([b // 2])
    def fixed(scale):
        q = np.eye(b)[starts]
        for _ in range(60 if b <= 100 else 30):
            y = scale[:, None] * (q @ K) - half
            y = np.exp(y - y.max(axis=1)[:, None])
            q = y / y.sum(axis=1)[:, None]
        return q, log_mean_exp(scale[:, None] * (q @ K) - half)
    low, high = np.zeros(len(starts)), np.full(len(starts), 4 * (eps + math.log(b) + 1 + K.max()) / np.diag(K).min())
    for _ in range(25 if b <= 100 else 14):
        middle = (low + high) / 2
        above = fixed(middle)[1] > eps
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    A = high[:, None] * fixed(high)[0]
    return A if b <= 100 else np.stack([np.roll(A[0], j - b // 2) for j in range(b)])

class Proposal:
    """add: X ~ a mixture of N(K a, K) over the rows a of `shifts`, and with probability 0.2 over single bins; rem: N(-t K 1/b, K)"""
    def __init__(self, K, eps, t):
        self.K, self.eps, self.t = K, eps, t
        self.A = A = shifts(K, eps)
        self.AK = A @ K
        self.norm = np.sum(self.AK * A, axis=1) / 2
        self.single = math.sqrt(2 * self.norm.max() / np.diag(K).max())

    def terms(self, Y, rng):
        """the importance-weighted terms of add and of rem"""
        K, eps, b = self.K, self.eps, len(self.K)
        half, t = np.diag(K) / 2, self.single
        bins, single = rng.integers(0, b, len(Y)), rng.random(len(Y)) < 0.2
        X = Y + np.where(single[:, None], t * K[bins], self.AK[bins])
        w = log_mean_exp(X - half)
        weight = np.logaddexp(math.log(0.8) + log_mean_exp(X @ self.A.T - self.norm), math.log(0.2) + log_mean_exp(t * X - t * t * half))
        add = np.where(w > eps, np.exp(w - weight) * -np.expm1(np.minimum(eps - w, 0)), 0.0)
        t = self.t
        X = Y - t * K.mean(axis=1)
        w = log_mean_exp(X - half)
        rem = np.where(w < -eps, -np.expm1(np.minimum(eps + w, 0)) * np.exp(t * X.mean(axis=1) + t * t * K.sum() / (2 * b * b)), 0.0)
        return add, rem

def monte_carlo(K, eps, samples, rng, size=10000):
    """(add, its standard error, rem, its standard error)"""
    L = np.linalg.cholesky(K + 1e-13 * K.max() * np.eye(len(K)))
    proposal = Proposal(K, eps, 1.0)
    # The tilt of rem that brings half of the samples to where they count. (The least sample variance would choose tilts that are far too
    # large: there the few weights that matter are not seen.)
    pilot = next(batches(rng, L, 4000, 4000))
    low, high = 0.0, 100.0
    for _ in range(15):
        t = (low + high) / 2
        w = log_mean_exp(pilot - t * K.mean(axis=1) - np.diag(K) / 2)
        inside = np.count_nonzero(w < -eps) > len(pilot) // 2
        low, high = (low, t) if inside else (t, high)
    proposal = with_tilt(proposal, high)
    sums = np.zeros(4)
    for Y in batches(rng, L, samples, size):
        add, rem = proposal.terms(Y, rng)
        sums += [add.sum(), (add * add).sum(), rem.sum(), (rem * rem).sum()]
    mean, square = sums[::2] / samples, sums[1::2] / samples
    error = np.sqrt((square - mean * mean) / samples)
    return mean[0], error[0], mean[1], error[1]

def with_tilt(proposal, t):
    other = object.__new__(Proposal)
    other.__dict__.update(proposal.__dict__, t=t)
    return other

def write_middle():
    rng = np.random.default_rng(8081)
    out, worst = [HEADER.replace("error", "standard_error")], 0.0
    while len(out) < 51:
        b = int(rng.integers(4, 17))
        k = int(rng.integers(1, 6))
        n = k * b - (int(rng.integers(0, b)) if k > 1 else 0)
        K = gram(random_strategy(rng, n), n, b)
        K = K / K.max() * math.exp(rng.uniform(math.log(0.05), math.log(6.0)))
        eps = math.exp(rng.uniform(math.log(0.1), math.log(5.0)))
        if eps > 0.2 + K.max() / 2 + 5 * math.sqrt(K.max()) - math.log(b): continue
        values = monte_carlo(K, eps, 20000, rng)
        if not (1e-10 < min(values[0], values[2]) and max(values[0], values[2]) < 0.9): continue
        values = monte_carlo(K, eps, 100000, rng)
        relative = max(values[1] / values[0], values[3] / values[2])
        if relative > 0.01: continue
        worst = max(worst, relative)
        out.append(row(eps, values, K))
    open("allocation_middle.txt", "w").write("\n".join(out) + "\n")
    print(len(out) - 1, "worst relative standard error", worst)

BLT1, BLT2 = ([0.1509], [0.9668]), ([0.2265, 0.0987], [0.5583, 0.9765])
def strategies(n, bisrs):
    for p in bisrs: yield f"bisr:{p}", bisr(p, n)
    yield "blt:1", blt(*BLT1, n)
    yield "blt:2", blt(*BLT2, n)

def write_real():
    rng = np.random.default_rng(1106)
    name = "allocation_real.txt"
    if not os.path.exists(name): open(name, "w").write("# strategy n b eps delta sigma sigma_standard_error worst_error worst_error_standard_error add/delta rem/delta at sigma\n"
        f"# blt:1 has scale and decay {BLT1}, blt:2 {BLT2}, for every n\n")
    for n, b, eps, delta, bisrs, samples in ((1000, 100, 2.0, 1e-6, (8, 16, 24, 32, 64, 100), 400000), (4000, 1000, 8.0, 1e-8, (16, 32, 64), 6000)):
        for strategy, c in strategies(n, bisrs):
            if f"{strategy} {n} " in open(name).read(): continue    # rows that are there are kept
            K = gram(c, n, b)
            def log_delta(log_sigma, samples, seed):
                values = monte_carlo(K * math.exp(-2 * log_sigma), eps, samples, np.random.default_rng(seed))
                return values, math.log(max(values[0], values[2]) / delta)
            few = samples // 10 if b > 500 else 8000
            x = math.log(math.sqrt(K.max()) / eps)
            step = 0.1
            value = log_delta(x, few, 1)[1]
            for _ in range(12):                # secant
                other = log_delta(x + step, few, 1)[1]
                slope = (other - value) / step
                x, value, step = x + step, other, max(-0.3, min(0.3, -other / slope))
                if abs(other) < 0.05: break
            slope = (log_delta(x + 0.02, few, 2)[1] - log_delta(x - 0.02, few, 2)[1]) / 0.04
            values, found = log_delta(x, samples, int(rng.integers(1 << 60)))
            at = 0 if values[0] > values[2] else 2
            sigma = math.exp(x - found / slope)
            relative = values[at + 1] / values[at] / abs(slope)
            error = sigma * worst_error(c, n)
            ratios = values[0] / values[at], values[2] / values[at]
            line = f"{strategy} {n} {b} {eps} {delta} {sigma:.6f} {sigma * relative:.6f} {error:.4f} {error * relative:.4f} {ratios[0]:.3f} {ratios[1]:.3f}"
            open(name, "a").write(line + "\n")
            print(line, f"# found {found:.3f} slope {slope:.2f}", flush=True)

def lattice_sum(b, d, h, count):
    """the masses of the mean of b independent lognormals of mean 1 and log-variance d on the lattice 0, h, ..., (count - 1) h, each
    lognormal split between neighbours so that it keeps its mean: no mass of the sum reaches below count h from above it"""
    s = math.sqrt(d)
    node = h * np.arange(count + 1) * b
    C = np.empty(count + 1)
    C[0], C[1:] = 1.0, call(1.0, node[1:], s)
    P = np.concatenate([[0.0], put(1.0, node[1:], s)])
    # Second differences of calls above the mean and of puts below keep their digits.
    second = lambda f: (f[2:] - 2 * f[1:-1] + f[:-2]) / (h * b)
    mass = np.concatenate([[P[1] / (h * b)], np.where(node[1:-1] > 1, second(C), second(P))])
    power, total = mass, None
    while b:
        if b & 1: total = power if total is None else np.convolve(total, power)[:count]
        b >>= 1
        if b: power = np.convolve(power, power)[:count]
    return total

def with_constant(b, eps, g, d, points):
    """(add, its error, rem, its error) for K = g 11^T + d I"""
    results = []
    for sign in (1, -1):
        c = math.exp(sign * eps)
        reach = 1 if g == 0 else math.exp((7 if sign > 0 else 8) * math.sqrt(g))
        values = []
        for refine in (1, 2, 4):
            h = c / (points * refine)
            count = int(points * refine * reach) + 1
            mass = lattice_sum(b, d, h, count)
            s = h * np.arange(count)
            if sign > 0:
                phi = np.maximum(s - c, 0) if g == 0 else np.concatenate([[0.0], call(s[1:], c, math.sqrt(g))])
                inside = float(np.dot(mass, phi))
                values.append(inside + (1 - float(np.dot(mass, s))) - c * (1 - float(mass.sum())))
            else:
                phi = np.maximum(c - s, 0) if g == 0 else np.concatenate([[c], put(s[1:], c, math.sqrt(g))])
                values.append(math.exp(eps) * float(np.dot(mass, phi)))
        once = [values[1] + (values[1] - values[0]) / 3, values[2] + (values[2] - values[1]) / 3]
        twice = once[1] + (once[1] - once[0]) / 15
        results += [twice, abs(twice - once[1]) + 3e-15 * math.exp(eps)]
    return results

def gaussian(eps, g):
    import mpmath as mp
    mp.mp.dps = 60
    mu, eps = mp.sqrt(mp.mpf(float(g))), mp.mpf(float(eps))
    return float(mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu))

def write_limits():
    out = ["# b eps add add_error rem rem_error g d: K = g 11^T + d I, see allocation.py"]
    for eps, g in ((0.1, 0.01), (0.5, 0.3), (1.0, 0.2), (2.0, 0.25), (4.0, 1.5), (8.0, 2.0), (8.0, 12.0)):
        delta = gaussian(eps, g)
        for b in (1, 2, 3, 17, 100): out.append(f"{b} {eps} {delta:.10e} 0 {delta:.10e} 0 {g} 0")
    for b, eps, g, d, points in ((2, 0.5, 0, 0.5, 800), (2, 1.5, 0, 2.0, 800), (3, 1.0, 0, 1.0, 800), (4, 0.3, 0, 0.2, 800), (8, 0.5, 0, 1.0, 1600), (8, 1.5, 0, 3.0, 1600),
            (16, 1.0, 0, 2.0, 3000), (16, 0.2, 0, 0.5, 3000), (100, 0.1, 0, 0.3, 6000), (100, 0.5, 0, 2.0, 8000), (100, 1.0, 0, 3.0, 8000), (100, 2.0, 0, 5.0, 10000),
            (2, 1.0, 0.1, 0.5, 500), (5, 0.5, 0.2, 1.0, 500), (20, 1.0, 0.1, 1.5, 1000), (100, 0.8, 0.05, 2.0, 2500)):
        a, ae, r, re = with_constant(b, eps, g, d, points)
        line = f"{b} {eps} {a:.10e} {ae:.1e} {r:.10e} {re:.1e} {g} {d}"
        if b < 4: print("quadrature", *[f"{v:.10e}" for v in small(np.full((b, b), float(g)) + d * np.eye(b), eps, 0.003 if b == 2 else 0.02)])
        print(line, flush=True)
        out.append(line)
    open("allocation_limits.txt", "w").write("\n".join(out) + "\n")

def write_epochs():
    """random allocation redrawn in each of k epochs of b steps, independent noise of multiplier 1 / sqrt(d): W is a product of k means of b
    lognormals. Monte Carlo: in every epoch one bin of the mixture is moved by t d (add), or all by -t d / b (rem)."""
    rng = np.random.default_rng(270)
    out, samples = ["# b k eps add add_standard_error rem rem_standard_error d"], 40000
    for b, k, eps, d in ((2, 2, 1.0, 0.3), (2, 5, 3.0, 0.5), (4, 3, 1.0, 0.3), (4, 10, 2.0, 0.2), (10, 2, 0.7, 0.4), (10, 4, 2.0, 0.8), (10, 20, 1.0, 0.1),
            (20, 3, 0.8, 1.5), (20, 8, 1.0, 0.6), (30, 2, 0.4, 0.8), (30, 5, 0.6, 0.6), (30, 10, 1.5, 1.5)):
        def terms(t, which, count):
            log_w, log_weight = np.zeros(count), np.zeros(count)
            for _ in range(k):
                X = rng.standard_normal((count, b)) * math.sqrt(d)
                if which == "add":
                    X[np.arange(count), rng.integers(0, b, count)] += t * d
                    log_weight -= log_mean_exp(t * X - t * t * d / 2)
                else:
                    X -= t * d / b
                    log_weight += t * X.mean(axis=1) + t * t * d / (2 * b)
                log_w += log_mean_exp(X - d / 2)
            if which == "add": return np.where(log_w > eps, np.exp(log_w + log_weight) * -np.expm1(np.minimum(eps - log_w, 0)), 0.0)
            return np.where(log_w < -eps, np.exp(log_weight) * -np.expm1(np.minimum(eps + log_w, 0)), 0.0)
        values = []
        for which in ("add", "rem"):
            low, high = 0.0, 12.0 if which == "add" else 60.0
            for _ in range(12):
                t = (low + high) / 2
                low, high = (low, t) if np.count_nonzero(terms(t, which, 1000)) > 500 else (t, high)
            x = terms(high, which, samples)
            values += [x.mean(), x.std() / math.sqrt(samples)]
        line = f"{b} {k} {eps} " + " ".join(f"{v:.6e}" for v in values) + f" {d}"
        print(line, f"# {values[1] / values[0]:.1%} {values[3] / max(values[2], 1e-300):.1%}", flush=True)
        out.append(line)
    open("allocation_epochs.txt", "w").write("\n".join(out) + "\n")

if __name__ == "__main__":
    for what in sys.argv[1:]: globals()["write_" + what]()
