"""specsim profiler: the only room that may import torch."""
