"""The car tasks: `env` has the task itself, the other modules what it is made of.

rules      what each task places, rewards and charges
layout     scenes that the caller gives, checked
placement  random scenes
model      the MuJoCo model
gremlins   moving boxes, simulated only while something can touch them
lidar      what the car observes and MuJoCo does not compute
poses      observations and costs at thousands of poses at once
pictures   the scene for drawings and for MuJoCo's renderer
"""
