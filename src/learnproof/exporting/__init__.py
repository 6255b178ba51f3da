"""A trained policy as an ONNX file that acts as the policy does, measured before it is written.

graph      the policy from the environment's observation to the environment's action, as one torch module
writing    that module as ONNX bytes, with where it comes from
checking   onnxruntime's answers beside the policy's own, on observations met and made up
export     the whole: read a run, make the file, check it, publish it
"""
