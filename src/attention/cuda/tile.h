// Tiles of rows in shared memory, and products of tiles.
//
// A tile holds rows of 16-bit values in chunks of 16 bytes. It has one of two layouts. ldmatrix reads the same chunk
// from 8 rows at once, which must lie in 8 different sets of banks. Shared memory has 32 banks of 32 bits, which is 8
// chunks.
#pragma once

#include "attention/cuda/lane.h"

ALIBI_LANES_BEGIN

/// The chunks of a row are permuted within it. This takes no memory.
template <int columns>
struct Tile {
  static constexpr int chunks = columns / 8;
  static constexpr int row_bytes = columns * 2;
  static_assert(chunks % 8 == 0 || chunks % 8 == 4,
                "the permutation needs rows whose length is a multiple of half a line of banks");

  static constexpr int bytes(int rows) { return rows * row_bytes; }
  static ALIBI_LANE int pattern(int row) { return chunks % 8 == 0 ? row % 8 : row / 2 % 4; }
  static ALIBI_LANE uint32_t address(uint32_t tile, int row, int chunk) {
    return tile + static_cast<uint32_t>(row * row_bytes + (chunk ^ pattern(row)) * 16);
  }
  /// The address of the chunk 2 * `step` chunks to the right of the one at `address`, whose number is 0 or 1. The tile
  /// is aligned to its rows.
  static ALIBI_LANE uint32_t to_the_right(uint32_t address, int step) {
    return address ^ static_cast<uint32_t>(step * 32);
  }
};

/// A chunk is left free after each row. Then the addresses of all chunks that a lane reads differ by constants, which
/// saves instructions and registers.
template <int columns>
struct SpacedTile {
  static constexpr int chunks = columns / 8;
  static constexpr int row_bytes = columns * 2 + 16;
  static_assert(chunks % 2 == 0);

  static constexpr int bytes(int rows) { return rows * row_bytes; }
  static ALIBI_LANE uint32_t address(uint32_t tile, int row, int chunk) {
    return tile + static_cast<uint32_t>(row * row_bytes + chunk * 16);
  }
  static ALIBI_LANE uint32_t to_the_right(uint32_t address, int step) {
    return address + static_cast<uint32_t>(step * 32);
  }
};

/// The part of a tile that a lane reads with ldmatrix.
struct Reader {
  uint32_t at;

  /// Of the fragment `row` rows further down and `step` 16-column steps to the right. `row` is a multiple of 8.
  template <class Layout>
  ALIBI_LANE uint32_t address(int row, int step) const {
    return Layout::to_the_right(at, step) + static_cast<uint32_t>(row * Layout::row_bytes);
  }
};

/// 16 rows as the left operand, or transposed as the right operand: first the sixteen rows, then the same rows eight
/// columns to the right.
template <class Layout>
ALIBI_LANE Reader rows_of_16(uint32_t tile, int row, int lane = thread_index() % 32) {
  return {Layout::address(tile, row + lane % 16, lane / 16)};
}
/// 16 rows as the columns of the right operand: eight rows, the same rows eight columns to the right, then the next
/// eight rows.
template <class Layout>
ALIBI_LANE Reader columns_of_16(uint32_t tile, int lane = thread_index() % 32) {
  return {Layout::address(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2)};
}

/// Starts copies of rows [row, row + rows) of a matrix with row stride `stride`. Rows from `end` on and columns from
/// `width` on become zeros. `thread` is the number of this thread among those that copy together.
template <class Layout, int rows, int threads>
ALIBI_LANE void copy_tile(uint32_t tile, const uint16_t* matrix, int64_t stride, int row, int end, int width,
                          int thread) {
  constexpr int chunks = Layout::chunks;
  static_assert(rows * chunks % threads == 0 && threads % chunks == 0, "each thread copies the chunks of one column");
  constexpr int step = threads / chunks;
  const int chunk = thread % chunks, first = thread / chunks;
  const uint16_t* from = matrix + (row + first) * stride + chunk * 8;
  ALIBI_UNROLLED
  for (int i = 0; i < rows; i += step) {
    const bool real = row + first + i < end && chunk * 8 < width;
    copy16(Layout::address(tile, first + i, chunk), real ? from : matrix, real);
    from += step * stride;
  }
}
/// Copies with all threads of the block.
template <class Layout, int rows, int threads>
ALIBI_LANE void copy_tile(uint32_t tile, const uint16_t* matrix, int64_t stride, int row, int end, int width) {
  copy_tile<Layout, rows, threads>(tile, matrix, stride, row, end, width, thread_index());
}

/// Sums of 16 x (8 n) values.
template <int n>
struct Sums {
  float at[n][4];

  ALIBI_LANE void clear() {
    ALIBI_UNROLLED
    for (int i = 0; i < n; ++i) {
      ALIBI_UNROLLED
      for (int e = 0; e < 4; ++e) at[i][e] = 0;
    }
  }
  ALIBI_LANE void add(const Sums& other) {
    ALIBI_UNROLLED
    for (int i = 0; i < n; ++i) {
      ALIBI_UNROLLED
      for (int e = 0; e < 4; ++e) at[i][e] += other.at[i][e];
    }
  }
};

/// sums[m] = start + a b': 16 rows of tile a for each m, and the first 8 n rows of tile b. `start` has a value for each
/// row that the lane has a part of.
template <Type type, class Layout, int m, int n>
ALIBI_LANE void multiply_rows(Sums<n> (&sums)[m], Reader a, Reader b, const float (&start)[2 * m]) {
  static_assert(n % 2 == 0);
  ALIBI_UNROLLED
  for (int i = 0; i < m; ++i) {
    ALIBI_UNROLLED
    for (int j = 0; j < n; ++j) {
      ALIBI_UNROLLED
      for (int e = 0; e < 4; ++e) sums[i].at[j][e] = start[2 * i + e / 2];
    }
  }
  ALIBI_UNROLLED
  for (int step = 0; step < Layout::chunks / 2; ++step) {
    uint32_t left[m][4];
    ALIBI_UNROLLED
    for (int i = 0; i < m; ++i) load4(left[i], a.address<Layout>(16 * i, step));
    ALIBI_UNROLLED
    for (int j = 0; j < n; j += 2) {
      uint32_t right[4];
      load4(right, b.address<Layout>(8 * j, step));
      ALIBI_UNROLLED
      for (int i = 0; i < m; ++i) {
        multiply<type>(sums[i].at[j], left[i], right[0], right[1]);
        multiply<type>(sums[i].at[j + 1], left[i], right[2], right[3]);
      }
    }
  }
}
template <Type type, class Layout, int m, int n>
ALIBI_LANE void multiply_rows(Sums<n> (&sums)[m], Reader a, Reader b) {
  const float zeros[2 * m] = {};
  multiply_rows<type, Layout>(sums, a, b, zeros);
}

/// The sum over the four lanes that share a row.
ALIBI_LANE float sum_of_row(float part) {
  part += lane_xor(part, 1);
  return part + lane_xor(part, 2);
}

/// Sums rounded to 16 bits, as the left operand of a product. Index 0 belongs to the row of at[..][0..1], index 1 to
/// the row 8 below it.
template <int n>
struct Fragment {
  uint32_t at[n][2];
};

template <Type type, int m, int n>
ALIBI_LANE void pack_rows(Fragment<n> (&packed)[m], const Sums<n> (&sums)[m]) {
  ALIBI_UNROLLED
  for (int i = 0; i < m; ++i) {
    ALIBI_UNROLLED
    for (int j = 0; j < n; ++j) {
      packed[i].at[j][0] = pack<type>(sums[i].at[j][0], sums[i].at[j][1]);
      packed[i].at[j][1] = pack<type>(sums[i].at[j][2], sums[i].at[j][3]);
    }
  }
}

/// sums[m] += w b. w has 16 x (8 n) values. b has 8 n rows, of which the columns [16 first_step, 16 first_step + 8
/// width) are used.
template <Type type, class Layout, int m, int n, int width>
ALIBI_LANE void add_product(Sums<width> (&sums)[m], const Fragment<n> (&w)[m], Reader b, int first_step = 0) {
  static_assert(n % 2 == 0 && width % 2 == 0);
  ALIBI_UNROLLED
  for (int k = 0; k < n; k += 2) {
    ALIBI_UNROLLED
    for (int j = 0; j < width; j += 2) {
      uint32_t right[4];
      load4_transposed(right, b.address<Layout>(8 * k, first_step + j / 2));
      ALIBI_UNROLLED
      for (int i = 0; i < m; ++i) {
        const uint32_t left[4] = {w[i].at[k][0], w[i].at[k][1], w[i].at[k + 1][0], w[i].at[k + 1][1]};
        multiply<type>(sums[i].at[j], left, right[0], right[1]);
        multiply<type>(sums[i].at[j + 1], left, right[2], right[3]);
      }
    }
  }
}

/// Writes the warp's sums, times a factor for each row, to the rows of `to` from `row` on. Rows from `end` on and
/// columns from `end_column` on are not written. The sums pass through the warp's own rows of a tile, from
/// `first_chunk` on, that no other warp reads.
template <Type type, class Layout, int m, int n>
ALIBI_LANE void write_rows(const Sums<n> (&sums)[m], const float (&factors)[2 * m], uint32_t tile, int tile_row,
                           uint16_t* to, int64_t stride, int row, int end, int first_column, int end_column,
                           int first_chunk = 0) {
  const int lane = thread_index() % 32;
  warp_sync();
  ALIBI_UNROLLED
  for (int i = 0; i < m; ++i) {
    ALIBI_UNROLLED
    for (int r = 0; r < 2; ++r) {
      const float factor = factors[2 * i + r];
      ALIBI_UNROLLED
      for (int j = 0; j < n; ++j) {
        const uint32_t at = Layout::address(tile, tile_row + 16 * i + 8 * r + lane / 4, first_chunk + j);
        shared_store(at + static_cast<uint32_t>(lane % 4 * 4),
                     pack<type>(sums[i].at[j][2 * r] * factor, sums[i].at[j][2 * r + 1] * factor));
      }
    }
  }
  warp_sync();
  for (int i = 0; i < 16 * m * n / 32; ++i) {
    const int chunk = (i * 32 + lane) % n, y = (i * 32 + lane) / n;
    const int column = first_column + chunk * 8;
    if (row + y < end && column < end_column) {
      const Chunk values = shared_load<Chunk>(Layout::address(tile, tile_row + y, first_chunk + chunk));
      *reinterpret_cast<Chunk*>(to + (row + y) * stride + column) = values;
    }
  }
}

ALIBI_LANES_END
