// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/VectorPool.h"

#include <gtest/gtest.h>

namespace millrace::sim {

TEST(VectorPool, AWideVectorGivesItsBytesAndTakesThemBack) {
  VectorPool pool(20);
  const VectorRef wide = pool.acquireWide();
  for (unsigned l = 0; l < 20; ++l)
    pool.wideStorage(wide)[l] = 0x04030201u * (l % 3 + 1);
  uint8_t cut[20];
  for (unsigned b = 0; b < 4; ++b)
    EXPECT_EQ(pool.bytes(VectorPool::byteOf(wide, b), cut)[1], (b + 1) * 2);
  uint32_t lanes[20];
  const VectorRef inOrder[] = {VectorPool::byteOf(wide, 0), VectorPool::byteOf(wide, 1),
                               VectorPool::byteOf(wide, 2), VectorPool::byteOf(wide, 3)};
  EXPECT_EQ(pool.lanesOf(inOrder, 4, lanes), pool.wideStorage(wide)) << "nothing is copied";
  EXPECT_EQ(pool.lanesOf(inOrder, 2, lanes)[0], 0x0201u)
      << "the upper bytes are not part of the group";
  const VectorRef swapped[] = {inOrder[1], inOrder[0]};
  EXPECT_EQ(pool.lanesOf(swapped, 2, lanes)[0], 0x0102u);
  pool.release(wide);
  EXPECT_EQ(pool.live(), 0u);
}

TEST(VectorPool, AVectorIsFreeWhenItsLastReferenceGoes) {
  VectorPool pool(16);
  const VectorRef narrow = pool.acquireNarrow();
  pool.retain(narrow, 2);
  pool.release(narrow), pool.release(narrow);
  EXPECT_EQ(pool.live(), 1u);
  pool.release(narrow);
  EXPECT_EQ(pool.live(), 0u);
  EXPECT_EQ(pool.acquireNarrow(), narrow) << "its place is used again";
  pool.release(0); // the zero vector belongs to nobody
  EXPECT_EQ(pool.narrow(0)[15], 0);
}

TEST(VectorPool, AVectorMayShowBytesThatLieElsewhere) {
  VectorPool pool(16);
  const uint8_t there[16] = {1, 2, 3};
  const VectorRef shown = pool.acquireShown(there);
  EXPECT_EQ(pool.bytes(shown, nullptr), there) << "nothing is copied";
  EXPECT_FALSE(pool.isSole(shown)) << "what it shows is not to be changed";
  pool.release(shown);
  const VectorRef own = pool.acquireNarrow();
  ASSERT_EQ(own, shown) << "its place is used again";
  EXPECT_EQ(pool.bytes(own, nullptr), pool.narrow(own));
  EXPECT_TRUE(pool.isSole(own));
  pool.retain(own);
  EXPECT_FALSE(pool.isSole(own));
  EXPECT_EQ(pool.references(), 2u);
}

TEST(VectorPool, AByteOfAWideVectorBecomesAVectorOfItsOwn) {
  VectorPool pool(16);
  const VectorRef wide = pool.acquireWide();
  pool.wideStorage(wide)[5] = 0x0a0b0c0d;
  pool.retain(wide);
  const VectorRef narrow = pool.narrowed(VectorPool::byteOf(wide, 2));
  EXPECT_EQ(pool.bytes(narrow, nullptr)[5], 0x0b);
  EXPECT_EQ(pool.references(), 2u) << "one of the wide vector went";
  EXPECT_EQ(pool.narrowed(narrow), narrow);
}

TEST(VectorPool, AskingForAPendingVectorComputesIt) {
  struct Source : PendingValues {
    VectorPool &pool;
    VectorRef owed;
    Source(VectorPool &pool, VectorRef owed) : pool(pool), owed(owed) {}
    void computeNow() override {
      pool.wideStorage(owed)[0] = 42;
      pool.setSource(owed, nullptr);
    }
  };
  VectorPool pool(16);
  Source source(pool, pool.acquireWide());
  pool.setSource(source.owed, &source);
  EXPECT_EQ(pool.wide(VectorPool::byteOf(source.owed, 2))[0], 42u);
}

} // namespace millrace::sim
