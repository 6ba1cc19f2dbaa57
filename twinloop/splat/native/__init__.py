"""C++ texts of the CPU rasteriser, compiled by the clang inside Warp."""
