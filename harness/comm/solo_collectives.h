#pragma once

#include <memory>

#include "kernels/base/device.h"
#include "kernels/collectives.h"

namespace bertha {

/// Collectives of a world of one rank, on any device: each is a copy on their stream, or nothing if
/// in place.
std::unique_ptr<Collectives> make_solo_collectives(Device& device);

}  // namespace bertha
