"""Writes gdp.txt: delta of mu-GDP at epsilon, to 50 digits with mpmath, for deltas from 1e-2 to 1e-300."""

import mpmath as mp

mp.mp.dps = 400
print("# mu epsilon delta, by gdp.py (mpmath, 400 digits of working precision)")
for mu in ["0.001", "0.01", "0.1", "0.3", "1", "2.5", "7", "20", "44"]:
    for digits in [2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 90, 100, 120, 140, 160, 180, 200, 220, 240, 260, 280, 300]:
        for push in ["0", "0.37"]:
            # epsilon as an f64, so that the reference is about the number that is tested.
            m = mp.mpf(float(mu))
            x = mp.sqrt(2 * digits * mp.log(10)) * mp.mpf("0.96") - mp.mpf(push)
            epsilon = mp.mpf(float(max(m * (x + m / 2), 0)))
            a, b = epsilon / m - m / 2, epsilon / m + m / 2
            delta = mp.ncdf(-a) - mp.exp(epsilon) * mp.ncdf(-b)
            if mp.mpf("1e-305") < delta < mp.mpf("0.1") and epsilon <= 1500:
                print(float(mu), repr(float(epsilon)), mp.nstr(delta, 50))
