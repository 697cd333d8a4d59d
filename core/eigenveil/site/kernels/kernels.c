/* Products of stored rows, each read once; the same integers as the numpy version in plain.py [P1].

A record z is `unit` times a stored row minus a public centre: |x unit| <= S, |z| <= 2 S = 2^13, which int16
holds. Sums of products are of integers (in units of a power of two), whose absolute values add up to less than
2^53: that much is asked of whoever calls. So no addition rounds, and neither order nor fused products matter.
What does round (a square root, a quotient and a product a record that is shortened) is single IEEE
operations on the same numbers as in numpy, and feeds no sum before it was truncated to integers.

Rows lie one after the other, d entries each; centres and matrices are filled up with zeros to whole lines. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

/* Vectors of 32 bytes: with 64, a processor without such registers takes twice the time (the compiler keeps them in
   memory), and one that has them gains nothing. */
enum { LANES = 4, LINE = 8 };     /* rows of centres and matrices are padded to whole lines */
enum { ROWS = 4, WIDTH = 256 };   /* a tile of so many rows and columns is 8 KiB: it stays in the cache */
enum { NARROW = 64, SUMS = 512 }; /* few columns are summed with a record in each lane */
enum { TOGETHER = 32 };           /* squares of |z| <= 2^13 that a word of 32 bits holds the sum of */
_Static_assert((int64_t)TOGETHER << 26 < (int64_t)1 << 32, "squares of |z| <= 2^13 fit into a word of 32 bits");
_Static_assert(TOGETHER <= NARROW, "fewer columns than TOGETHER go the way of few columns");
typedef double lanes __attribute__((vector_size(32), aligned(8)));
typedef int16_t halves __attribute__((vector_size(8), aligned(2)));
typedef int8_t bytes __attribute__((vector_size(4), aligned(1)));
typedef int32_t words __attribute__((vector_size(16)));
typedef double tile[ROWS][WIDTH] __attribute__((aligned(64)));

typedef struct {
    const void *rows;
    int64_t bytes, m, d, unit;
    const int16_t *centre;
} stored;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE int64_t whole_lines(int64_t columns) { return (columns + LINE - 1) / LINE * LINE; }

INLINE double added(const lanes *sum) {
    lanes v = *sum;
    return (v[0] + v[2]) + (v[1] + v[3]);
}

/* z = x unit - centre, a multiple of 32 entries, which compilers vectorise. */
#define CENTRED(TYPE)                                                                           \
    do {                                                                                        \
        const TYPE *restrict x = (const TYPE *)s->rows + at;                                    \
        for (int64_t j = 0; j < many; j++) z[j] = (int16_t)(x[j] * unit - centre[j]);           \
    } while (0)

INLINE void centred(const stored *s, int64_t at, const int16_t *restrict centre, int64_t many, double *restrict z) {
    const int16_t unit = (int16_t)s->unit;
    if (s->bytes == 2) CENTRED(int16_t);
    else CENTRED(int8_t);
}

INLINE halves stored_lanes(const stored *s, int64_t at) {
    return s->bytes == 2 ? *(const halves *)((const int16_t *)s->rows + at)
                         : __builtin_convertvector(*(const bytes *)((const int8_t *)s->rows + at), halves);
}

/* The same for one vector of LANES entries. */
INLINE void centred_lanes(const stored *s, int64_t at, const int16_t *centre, double *z) {
    halves x = stored_lanes(s, at);
    words wide = __builtin_convertvector(x * (int16_t)s->unit - *(const halves *)centre, words);
    *(lanes *)z = __builtin_convertvector(wide, lanes);
}

/* z of one row, columns `from` on; the last lanes overlap those before them. */
INLINE void widened(const stored *s, int64_t row, int64_t from, int64_t columns, double *z) {
    int64_t at = row * s->d + from, many = columns / 32 * 32;
    const int16_t *centre = s->centre + from;
    centred(s, at, centre, many, z);
    for (int64_t j = many; j < columns && columns >= LANES; j += LANES) {
        int64_t here = least(j, columns - LANES);
        centred_lanes(s, at + here, centre + here, z + here);
    }
    for (int64_t j = 0; j < columns && columns < LANES; j++) {
        int x = s->bytes == 2 ? ((const int16_t *)s->rows)[at + j] : ((const int8_t *)s->rows)[at + j];
        z[j] = x * (int)s->unit - centre[j];
    }
}

/* The same, padded to whole lines with zeros. */
INLINE void padded(const stored *s, int64_t row, int64_t from, int64_t columns, double *z) {
    memset(z + whole_lines(columns) - LINE, 0, LINE * sizeof(double));
    widened(s, row, from, columns, z);
}

/* ROWS rows from `row` on, zeros where there are none; the number of lanes in a row. */
INLINE int64_t filled(const stored *s, int64_t row, int64_t from, tile z) {
    int64_t columns = least(WIDTH, s->d - from), full = whole_lines(columns), rows = least(ROWS, s->m - row);
    for (int r = 0; r < ROWS; r++) {
        if (r < rows)
            padded(s, row + r, from, columns, z[r]);
        else
            memset(z[r], 0, sizeof z[r]);
    }
    return full;
}

/* norm2[row] += ||z||^2 for ROWS rows. */
INLINE void add_squares(tile z, int64_t full, double *sums) {
    lanes sum[ROWS] = {{0}};
    for (int64_t j = 0; j < full; j += LANES)
        for (int r = 0; r < ROWS; r++) {
            lanes v = *(lanes *)(z[r] + j);
            sum[r] += v * v;
        }
    for (int r = 0; r < ROWS; r++) sums[r] += added(&sum[r]);
}

INLINE void add_along(tile z, int64_t full, const double *w, double *sums) {
    lanes sum[ROWS] = {{0}};
    for (int64_t j = 0; j < full; j += LANES) {
        lanes v = *(const lanes *)(w + j);
        for (int r = 0; r < ROWS; r++) sum[r] += *(lanes *)(z[r] + j) * v;
    }
    for (int r = 0; r < ROWS; r++) sums[r] += added(&sum[r]);
}

#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)

/* Of LANES rows from `row` on, columns `from` to `from` + LANES: one vector a column, a row in each lane. */
INLINE void turned_block(const stored *s, int64_t row, int64_t from, lanes *z) {
    halves x[LANES], y[LANES];
    for (int r = 0; r < LANES; r++) x[r] = stored_lanes(s, (row + r) * s->d + from);
    for (int step = 0; step < 2; step++) { /* a perfect shuffle of lines, twice over, turns them */
        for (int r = 0; r < LANES / 2; r++) {
            y[2 * r] = LOW(x[r], x[r + LANES / 2]);
            y[2 * r + 1] = HIGH(x[r], x[r + LANES / 2]);
        }
        memcpy(x, y, sizeof x);
    }
    for (int j = 0; j < LANES; j++) {
        words wide = __builtin_convertvector(x[j] * (int16_t)s->unit - s->centre[from + j], words);
        z[from + j] = __builtin_convertvector(wide, lanes);
    }
}

/* LANES rows from `row` on, all columns, zeros where there are no rows; how many there are. */
INLINE int64_t turned(const stored *s, int64_t row, lanes *z) {
    int64_t rows = least(LANES, s->m - row);
    if (rows == LANES && s->d >= LANES) {
        for (int64_t j = 0; j < s->d; j += LANES) turned_block(s, row, least(j, s->d - LANES), z);
        return rows;
    }
    for (int64_t j = 0; j < s->d; j++) {
        z[j] = (lanes){0};
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (row + r) * s->d + j;
            int x = s->bytes == 2 ? ((const int16_t *)s->rows)[at] : ((const int8_t *)s->rows)[at];
            z[j][r] = x * (int)s->unit - s->centre[j];
        }
    }
    return rows;
}

/* sums[i] = z v[i] for ROWS vectors at once, which hides the latency of each addition. */
INLINE void products(const lanes *z, int64_t d, const double *const *v, lanes *sums) {
    lanes sum[ROWS] = {{0}};
    for (int64_t j = 0; j < d; j++)
        for (int i = 0; i < ROWS; i++) sum[i] += z[j] * v[i][j];
    memcpy(sums, sum, sizeof sum);
}

INLINE void squared(const lanes *z, int64_t d, lanes *norms) {
    lanes sum[ROWS] = {{0}};
    int64_t j = 0;
    for (; j + ROWS <= d; j += ROWS)
        for (int i = 0; i < ROWS; i++) sum[i] += z[j + i] * z[j + i];
    for (; j < d; j++) sum[0] += z[j] * z[j];
    *norms = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

INLINE void along_narrow(const stored *s, const double *w, int64_t k, double *a, double *norm2) {
    lanes z[NARROW], sums[ROWS], norms;
    for (int64_t row = 0; row < s->m; row += LANES) {
        size_t size = sizeof(double) * (size_t)turned(s, row, z);
        squared(z, s->d, &norms);
        memcpy(norm2 + row, &norms, size);
        for (int64_t q = 0; q < k; q += ROWS) {
            const double *v[ROWS];
            for (int i = 0; i < ROWS; i++) v[i] = w + least(q + i, k - 1) * whole_lines(s->d);
            products(z, s->d, v, sums);
            for (int64_t i = 0; i < ROWS && q + i < k; i++) memcpy(a + (q + i) * s->m + row, &sums[i], size);
        }
    }
}

INLINE void combined_narrow(const stored *s, const double *b, int64_t k, double *total) {
    lanes z[NARROW], sums[SUMS] = {{0}};
    for (int64_t row = 0; row < s->m; row += LANES) {
        int64_t rows = turned(s, row, z);
        for (int64_t q = 0; q < k; q++) {
            lanes times = {0};
            memcpy(&times, b + q * s->m + row, sizeof(double) * (size_t)rows);
            for (int64_t j = 0; j < s->d; j++) sums[q * s->d + j] += times * z[j];
        }
    }
    for (int64_t q = 0; q < k; q++)
        for (int64_t j = 0; j < s->d; j++) total[q * whole_lines(s->d) + j] += added(&sums[q * s->d + j]);
}

/* a (k, m) = z W and norm2 (m) = ||z||^2, both zeros before; W (k, whole lines of d). */
FOR_EACH_PROCESSOR
void eigenveil_project(const stored *s, const double *w, int64_t k, double *a, double *norm2) {
    tile z;
    if (s->d <= NARROW) {
        along_narrow(s, w, k, a, norm2);
        return;
    }
    int64_t line = whole_lines(s->d);
    for (int64_t row = 0; row < s->m; row += ROWS) {
        int64_t rows = least(ROWS, s->m - row);
        for (int64_t from = 0; from < s->d; from += WIDTH) {
            int64_t full = filled(s, row, from, z);
            double sums[ROWS] = {0};
            add_squares(z, full, sums);
            for (int r = 0; r < rows; r++) norm2[row + r] += sums[r];
            for (int64_t q = 0; q < k; q++) {
                double along[ROWS] = {0};
                add_along(z, full, w + q * line + from, along);
                for (int r = 0; r < rows; r++) a[q * s->m + row + r] += along[r];
            }
        }
    }
}

/* total (k, whole lines of d) += b z; b (k, m). */
FOR_EACH_PROCESSOR
void eigenveil_weighted_sum(const stored *s, const double *b, int64_t k, double *total) {
    tile z;
    if (s->d <= NARROW && s->d * k <= SUMS) {
        combined_narrow(s, b, k, total);
        return;
    }
    int64_t line = whole_lines(s->d);
    for (int64_t row = 0; row < s->m; row += ROWS) {
        int64_t rows = least(ROWS, s->m - row);
        for (int64_t from = 0; from < s->d; from += WIDTH) {
            int64_t full = filled(s, row, from, z);
            for (int64_t q = 0; q < k; q++) {
                double *t = total + q * line + from, times[ROWS] = {0};
                for (int r = 0; r < rows; r++) times[r] = b[q * s->m + row + r];
                for (int64_t j = 0; j < full; j += LANES) {
                    lanes sum = *(lanes *)(t + j);
                    for (int r = 0; r < ROWS; r++) sum += times[r] * *(lanes *)(z[r] + j);
                    *(lanes *)(t + j) = sum;
                }
            }
        }
    }
}

/* The sum of z^2 over TOGETHER columns of a row; `keep` is -1 where an entry counts and 0 where it does not. */
#define SQUARED(TYPE)                                                                           \
    do {                                                                                        \
        const TYPE *restrict x = (const TYPE *)s->rows + at;                                    \
        for (int64_t j = 0; j < TOGETHER; j++) {                                                \
            int16_t z = (int16_t)(x[j] * unit - centre[j]) & keep[j];                           \
            sum += (uint32_t)(z * z);                                                           \
        }                                                                                       \
    } while (0)

INLINE uint32_t squared_together(const stored *s, int64_t at, const int16_t *restrict centre,
                                 const int16_t *restrict keep) {
    const int16_t unit = (int16_t)s->unit;
    uint32_t sum = 0;
    if (s->bytes == 2) SQUARED(int16_t);
    else SQUARED(int8_t);
    return sum;
}

/* norm2 (m) = ||z||^2: integers, of which a processor has more in a register than of doubles. The last columns of a
   row overlap those before them, and only what is new counts. */
FOR_EACH_PROCESSOR
void eigenveil_squared_norms(const stored *s, double *norm2) {
    int16_t all[TOGETHER], rest[TOGETHER];
    int64_t last = s->d - TOGETHER, whole = s->d / TOGETHER * TOGETHER;
    if (last < 0) {
        along_narrow(s, 0, 0, 0, norm2);
        return;
    }
    for (int64_t j = 0; j < TOGETHER; j++) {
        all[j] = -1;
        rest[j] = last + j < whole ? 0 : -1;
    }
    for (int64_t row = 0; row < s->m; row++) {
        int64_t from = row * s->d, sum = 0;
        for (int64_t j = 0; j < whole; j += TOGETHER) sum += squared_together(s, from + j, s->centre + j, all);
        if (whole < s->d) sum += squared_together(s, from + last, s->centre + last, rest);
        norm2[row] = (double)sum;
    }
}

INLINE double squares(const double *z, int64_t line) {
    lanes sum[ROWS] = {{0}}, one = {0};
    int64_t j = 0;
    for (; j + ROWS * LANES <= line; j += ROWS * LANES)
        for (int i = 0; i < ROWS; i++) {
            lanes v = *(const lanes *)(z + j + i * LANES);
            sum[i] += v * v;
        }
    for (; j < line; j += LANES) one += *(const lanes *)(z + j) * *(const lanes *)(z + j);
    one += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return added(&one);
}

/* z (m, d). */
FOR_EACH_PROCESSOR
void eigenveil_widened(const stored *s, double *z) {
    for (int64_t row = 0; row < s->m; row++) widened(s, row, 0, s->d, z + row * s->d);
}

/* z (m, whole lines of d), rows of norm above the radius scaled, truncated towards zero and, should they still be
   too long, nothing: clipping.shorten. */
FOR_EACH_PROCESSOR
void eigenveil_clipped(const stored *s, double radius, double *out) {
    int64_t line = whole_lines(s->d);
    for (int64_t row = 0; row < s->m; row++) {
        double *z = out + row * line, norm2;
        padded(s, row, 0, s->d, z);
        if ((norm2 = squares(z, line)) <= radius * radius) continue;
        double scale = radius / sqrt(norm2);
        for (int64_t j = 0; j < line; j += LANES) {
            words whole = __builtin_convertvector(*(lanes *)(z + j) * scale, words);
            *(lanes *)(z + j) = __builtin_convertvector(whole, lanes);
        }
        if (squares(z, line) > radius * radius) memset(z, 0, sizeof(double) * (size_t)line);
    }
}

typedef struct {
    int64_t m, k, radius;
    double offset2, certain, tiny, safe, steps;
    const double *a, *z_offset, *norm, *norm2; /* a and z_offset (k, m); z_offset is null where there is none */
    double *b, *u;
} pulls;

INLINE double row_dot(const pulls *p, const double *left, const double *right, int64_t row) {
    double sum = left[row] * right[row];
    for (int64_t q = 1; q < p->k; q++) sum += left[q * p->m + row] * right[q * p->m + row];
    return sum;
}

INLINE double larger(double a, double b) { return a > b ? a : b; }

/* 1 if ||z b^T - u offset||_F^2 <= R^2, in 64 bits (clipping._within_radius). */
INLINE int fits(const pulls *p, int64_t row) {
    if (!(row_dot(p, p->b, p->b, row) * p->norm2[row] < p->safe)) return 0;
    int64_t square = 0, cross = 0, u = p->z_offset ? (int64_t)p->u[row] : 0;
    for (int64_t q = 0; q < p->k; q++) {
        int64_t b = (int64_t)p->b[q * p->m + row];
        square += b * b;
        if (p->z_offset) cross += b * (int64_t)p->z_offset[q * p->m + row];
    }
    square *= (int64_t)p->norm2[row];
    square += (cross * -2 + u * (int64_t)p->offset2) * u;
    return square <= p->radius * p->radius;
}

/* clipping._clip_doubtful for one record. */
INLINE void shorten(const pulls *p, int64_t row) {
    double norm = p->norm[row], room = (double)p->radius - sqrt((double)p->k) * norm, length;
    double square = row_dot(p, p->a, p->a, row);
    if (p->z_offset) {
        room -= sqrt(p->offset2);
        square *= norm;
        square *= norm;
        square -= row_dot(p, p->a, p->z_offset, row) * (2.0 * p->steps);
        square += (p->steps * p->steps) * p->offset2;
        length = sqrt(larger(square, 0));
    } else
        length = (p->k == 1 ? fabs(p->a[row]) : sqrt(square)) * norm;
    room = larger(room, 0);
    double scale = room / larger(larger(length, room), p->tiny);
    for (int64_t q = 0; q < p->k; q++) p->b[q * p->m + row] = trunc(p->a[q * p->m + row] * scale);
    if (p->z_offset) p->u[row] = floor(scale * p->steps);
    if (fits(p, row)) return;
    for (int64_t q = 0; q < p->k; q++) p->b[q * p->m + row] = 0;
    if (p->z_offset) p->u[row] = 0;
}

/* clipping.gradient_coefficients: the same operations on the same numbers in the same order. */
FOR_EACH_PROCESSOR
void eigenveil_coefficients(const pulls *p) {
    double reach[WIDTH], root = sqrt((double)p->k);
    for (int64_t first = 0; first < p->m; first += WIDTH) {
        int64_t rows = least(WIDTH, p->m - first);
        const double *restrict norm = p->norm + first;
        for (int64_t q = 0; q < p->k; q++) {
            const double *restrict a = p->a + q * p->m + first;
            double *restrict b = p->b + q * p->m + first;
            for (int64_t r = 0; r < rows; r++) b[r] = trunc(a[r]);
            if (p->k == 1)
                for (int64_t r = 0; r < rows; r++) reach[r] = fabs(a[r]);
            else
                for (int64_t r = 0; r < rows; r++) reach[r] = (q ? reach[r] : 0) + a[r] * a[r];
        }
        if (p->k > 1)
            for (int64_t r = 0; r < rows; r++) reach[r] = sqrt(reach[r]);
        for (int64_t r = 0; r < rows; r++) reach[r] = (reach[r] + root) * norm[r];
        for (int64_t r = 0; r < rows; r++) {
            if (p->z_offset) p->u[first + r] = p->steps;
            if (reach[r] > p->certain) shorten(p, first + r);
        }
    }
}
