#!/bin/sh
@{header}
# One minute, after the first one (start-up and compilation); the work goes on after it. On one node.
# Look at it with:  nsys stats out/nsys-*.nsys-rep   (cuda_gpu_kern_sum: share of nccl kernels = communication)
set -eu
@{environment}
mkdir -p out
@{command}
