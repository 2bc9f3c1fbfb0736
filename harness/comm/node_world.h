#pragma once

#include <memory>

#include "harness/comm/world.h"

namespace bertha {

/// The ranks of this node as a world of their own, with a board of this rank alone. All ranks of
/// the job make it and end it together, while the world of the job lives.
std::unique_ptr<World> make_node_world();

}  // namespace bertha
